"""Several owners of records vote together, and none of them shows its votes to anybody.

`agreement` is what all parties sign, `session` is the door of the vote, and `certificates` are how parties
know one another. The other files are the protocol: `connections` and `presence` of processes, `wire` and
`engine` of messages, `shamir`, `inputs` and `ranges` of shared numbers, and `argmax` of their answers.
"""
