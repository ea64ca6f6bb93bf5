package formats

import (
	"fmt"
	"sort"

	"inferplan/formats/document"
)

// Calibration is a rising step function that turns raw certainties into the share of right answers at them.
// Without steps, certainties stay unchanged.
type Calibration []CalibrationStep

// CalibrationStep holds from a raw certainty on, up to the next step.
type CalibrationStep struct {
	MinRaw    float64 `json:"from"`
	Certainty float64 `json:"certainty"`
}

// Calibrated returns the calibrated certainty for a model's raw one: that of the last step that begins at or below
// it. Below the first step it is that of the first step. Without steps it is the raw one.
func (steps Calibration) Calibrated(raw float64) float64 {
	if len(steps) == 0 {
		return raw
	}
	n := sort.Search(len(steps), func(i int) bool { return steps[i].MinRaw > raw })
	return steps[max(0, n-1)].Certainty
}

// check reports to c the steps of a calibration table that are wrong: raw certainties and the calibrated ones
// beside them lie between 0 and 1, the raw ones rise from step to step, the others do not fall. path is where the
// table stands in the document.
func (steps Calibration) check(c *document.Checker, path string) {
	for i, s := range steps {
		entryPath := fmt.Sprintf("%s[%d]", path, i)
		c.FailIf(!(s.MinRaw >= 0 && s.MinRaw <= 1) || i > 0 && s.MinRaw <= steps[i-1].MinRaw, entryPath+".from", s.MinRaw, "certainties from 0 to 1, rising")
		c.FailIf(!(s.Certainty >= 0 && s.Certainty <= 1) || i > 0 && s.Certainty < steps[i-1].Certainty, entryPath+".certainty", s.Certainty, "certainties from 0 to 1 that do not fall")
	}
}
