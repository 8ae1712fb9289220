"""Sources and sinks: where rows come from and where they go.

Programs import the connector that they use; importing this package loads none of them. Each implements the
contract in `penstock.engine.connectors` and needs nothing else of the engine but elements, errors and the
clock.
"""
