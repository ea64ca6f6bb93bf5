package trtexec

import (
	"fmt"
	"io"
	"time"
)

// Times are the inferences of a run, in order.
type Times struct {
	HostToDevice []time.Duration // copies of the inputs
	Compute      []time.Duration // on the GPU
	DeviceToHost []time.Duration // copies of the outputs
}

var timeFields = []string{
	"startEnqMs", "endEnqMs", "startH2dMs", "endH2dMs", "startComputeMs", "endComputeMs", "startD2hMs", "endD2hMs",
	"h2dMs", "computeMs", "d2hMs", "latencyMs", "endToEndMs",
}

// ReadTimes reads what --exportTimes wrote; name is what errors call it.
func ReadTimes(r io.Reader, name string) (*Times, error) {
	list, err := readEntries(r, name, "a list of times, as trtexec --exportTimes writes it", timeFields)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, (&file{name: name}).fail(0, "", "an empty list", "at least one inference", "")
	}
	t := &Times{}
	for i := range list {
		e := &list[i]
		var v [4]time.Duration
		for k, field := range [...]string{"h2dMs", "computeMs", "d2hMs", "latencyMs"} {
			if v[k], err = e.time(field); err != nil {
				return nil, err
			}
		}
		if v[1] == 0 {
			return nil, e.fail("computeMs", "the number 0", "more than 0", "")
		}
		// Figures have six digits.
		if sum := v[0] + v[1] + v[2]; (sum - v[3]).Abs() > sum/1000+time.Microsecond {
			return nil, e.fail("latencyMs", v[3].String(), fmt.Sprintf("h2dMs + computeMs + d2hMs, %v", sum), "")
		}
		t.HostToDevice, t.Compute, t.DeviceToHost = append(t.HostToDevice, v[0]), append(t.Compute, v[1]), append(t.DeviceToHost, v[2])
	}
	return t, nil
}
