"""The command line `penstock`: runs flows, shows and drives the jobs of a cluster, looks at savepoints.

`main` is the entry; the other modules hold its commands. Each command prints one JSON document where it is asked to.
"""
