"""Attacks on a run by its owner: what one person risks, and attacks that would show a mistake.

removals   the votes that move when a teacher is trained again without one person, and a crowd's tables
risk       all of it: the exact figures of single persons, checked, and written into private/
attack     what an attack on a run is: the interface of those below
every      all that suit a run
mechanism  whether the noise that is drawn is the noise that is charged for, by millions of draws
canaries   what epsilon is at least, by records of an attacker's choosing in a copy of the pipeline
steps_canaries    such records where sums take several steps, one a direction
teacher_canaries  such a record in one shard, which moves a vote at every query
canary_bounds     the lower bounds that they give, by jax_privacy
recovery   whether repeated answers give votes away that nobody paid for
poisoning  how many bad teachers or voters it takes to change an answer: certificates, and trials
poisoned   all of it for a finished run: poisoned_teachers, poisoned_crowds, and sums in several steps
shadows    a whole pipeline again and again, each time on another half of the records
membership who took part, guessed from what shadows show: loss, LiRA, RMIA, and the noisy table
roc        how good such guesses are, beside what a guarantee allows
twins      broken pipelines, which every attack must detect
sums_pipeline  the pipeline of a crowd's class sums in memory
public_twin  attacks on a twin of public records, of which the release may speak
reconstruction  the student again, from public inputs and released answers alone
attributes a hidden part of a record, guessed from the student
"""
