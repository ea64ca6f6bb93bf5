package documents

import (
	"inferplan/formats/document"
	"inferplan/planner/pool/problem"
)

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

// OptionValues are the values of the options of this kind of plan.
type OptionValues struct {
	Algorithm     string
	Objective     string
	Margin        float64
	Rounding      problem.Rounding
	MaxPartitions int
	MaxBatch      int
	Blocks        int
	BlocksBy      string
	BatchBuild    float64
	MinLoad       float64
	Gap           float64
	Effort        int
	SLO           document.SLO
	CutDType      string
	UnevenNIC     bool
	MaxMoved      float64
}

// OptionValuesOf reads the values of the planner's options, by name, into a struct.
func OptionValuesOf(v document.Values) OptionValues {
	c := OptionValues{
		Algorithm: v.Word("algorithm"), Objective: v.Word("objective"), Margin: v.Number("margin"), Rounding: problem.Slot,
		MaxPartitions: v.WholeNumber("max-partitions"), MaxBatch: v.WholeNumber("max-batch"), Blocks: v.WholeNumber("blocks"), BlocksBy: v.Word("blocks-by"),
		BatchBuild: v.Number("batch-build"), MinLoad: v.Number("min-load"), Gap: v.Number("gap"), Effort: v.WholeNumber("effort"),
		SLO: v.SLO("slo"), CutDType: v.Word("cut-dtype"), UnevenNIC: v.Flag("uneven-nic"), MaxMoved: v.Number("max-moved"),
	}
	if v.Word("gpu-rounding") == "fractional" {
		c.Rounding = problem.Fractional
	}
	return c
}
