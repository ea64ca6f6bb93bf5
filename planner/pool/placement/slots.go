package placement

// SlotKey names a slot: the replicas that may share whole devices under the slot rule.
type SlotKey struct{ Model, Stage, Pool int }
