"""The web server of a cluster: REST as Flink has it, Prometheus, events, and the pages of the web console.

`penstock console` starts it in an actor of its own. It reads jobs by their managers and steers them as the commands
do; no job needs it, and none notices when it dies. Needs the extra `penstock[console]`.
"""
