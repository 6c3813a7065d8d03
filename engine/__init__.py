"""The engine process: owns the device, the weights, all KV and the schedule; speaks ZeroMQ only."""
