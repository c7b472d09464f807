"""Several owners of records vote together, and none of them shows its votes to anybody.

`agreement` is what all parties sign, `session` is the door of the vote, and `certificates` are how parties
know one another. The other files are the protocol between processes: `connections`, `wire`, `shamir`,
`ranges` and `argmax`.
"""
