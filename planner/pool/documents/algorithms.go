package documents

// Algorithms and objectives.
const (
	AlgorithmTemplate = "template"
	AlgorithmNP       = "np"
	AlgorithmDARTr    = "dart-r"

	ObjectiveThroughput = "throughput"
	ObjectiveCost       = "cost"  // least USD per hour of the devices used
	ObjectivePower      = "power" // least watts
	ObjectiveGPUs       = "gpus"  // fewest devices
)
