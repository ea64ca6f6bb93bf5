package policy

import "fmt"

var eventNames = [NumEvents]string{
	BatchFinished: "BatchFinished", BatchReturned: "BatchReturned", TransferFinished: "TransferFinished", BatchStarted: "BatchStarted",
	NetworkLoaded: "NetworkLoaded", NetworkUnloaded: "NetworkUnloaded", WorkerLost: "WorkerLost", WorkerBack: "WorkerBack",
	ControlRevealed: "ControlRevealed", TaskRevealed: "TaskRevealed", TokenProgress: "TokenProgress", PlanInstalled: "PlanInstalled",
	ReplanResult: "ReplanResult", Arrival: "Arrival", Cancel: "Cancel", Timer: "Timer",
}

var actionNames = [NumActions]string{
	Dispatch: "Dispatch", Drop: "Drop", Wake: "Wake", Abort: "Abort", Load: "Load", Unload: "Unload", Evict: "Evict",
	SwitchMode: "SwitchMode", Replan: "Replan", Complete: "Complete", Place: "Place",
}

// String returns the name of the event kind's constant.
func (k EventKind) String() string {
	if k < NumEvents {
		return eventNames[k]
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// String returns the name of the action kind's constant.
func (k ActionKind) String() string {
	if k < NumActions {
		return actionNames[k]
	}
	return fmt.Sprintf("action %d", uint8(k))
}
