package trtexec

import (
	"io"

	"inferplan/profiler"
)

// inference is an entry of a file, in milliseconds. TensorRT 7 and before have inMs and outMs for the copies.
type inference struct {
	Compute float64 `json:"computeMs"`
	H2D     float64 `json:"h2dMs,omitempty"`
	D2H     float64 `json:"d2hMs,omitempty"`
	In      float64 `json:"inMs,omitempty"`
	Out     float64 `json:"outMs,omitempty"`
}

type inferences []inference

// timeFields are the fields of entries of times, of TensorRT 7.0.0 to 11.1.
var timeFields = []string{
	"startEnqMs", "endEnqMs", "startH2dMs", "endH2dMs", "startComputeMs", "endComputeMs", "startD2hMs", "endD2hMs", "h2dMs", "computeMs", "d2hMs", "latencyMs", "endToEndMs",
	"startInMs", "endInMs", "startOutMs", "endOutMs", "inMs", "outMs",
}

// Validate returns an error unless the times of a file are at least one, and valid.
func (list inferences) Validate() error {
	if len(list) == 0 {
		return findingAt(-1, "", "an empty list", "at least one inference")
	}
	for i := range list {
		if list[i].Compute == 0 {
			return findingAt(i, "computeMs", "the number 0", "more than 0")
		}
		for _, t := range []struct {
			field string
			ms    float64
		}{{"computeMs", list[i].Compute}, {"h2dMs", list[i].H2D}, {"d2hMs", list[i].D2H}, {"inMs", list[i].In}, {"outMs", list[i].Out}} {
			if err := checkTime(i, t.field, t.ms); err != nil {
				return err
			}
		}
	}
	return nil
}

// readTimes reads a file of --exportTimes: how long each inference took. unknown are the fields of entries that no
// version of trtexec writes, as far as is known. Errors use name for the file.
func readTimes(r io.Reader, name string) (times []profiler.Inference, unknown []string, err error) {
	var list inferences
	if unknown, err = read(r, name, "a list of times, as trtexec --exportTimes writes it", &list, timeFields); err != nil {
		return nil, nil, err
	}
	times = make([]profiler.Inference, len(list))
	for i := range list {
		e := &list[i]
		times[i] = profiler.Inference{HostToDevice: duration(e.H2D + e.In), Compute: duration(e.Compute), DeviceToHost: duration(e.D2H + e.Out)}
	}
	return times, unknown, nil
}
