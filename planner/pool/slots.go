package pool

// slotKey names a slot: the replicas that may share whole devices under the slot rule.
type slotKey struct{ model, slot, pool int }
