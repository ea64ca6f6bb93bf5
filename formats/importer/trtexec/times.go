package trtexec

import (
	"io"
	"time"
)

// inferences are the entries of a file. Other fields are skipped.
type inferences []struct {
	Compute float64 `json:"computeMs"`
}

// Validate returns an error unless the list has inferences, each with a positive time.
func (list inferences) Validate() error {
	if len(list) == 0 {
		return findingAt(-1, "", "an empty list", "at least one inference")
	}
	for i := range list {
		if list[i].Compute == 0 {
			return findingAt(i, "computeMs", "the number 0", "more than 0")
		}
		if err := checkTime(i, "computeMs", list[i].Compute); err != nil {
			return err
		}
	}
	return nil
}

// ReadTimes reads a file of --exportTimes: how long each inference computed, without copies between host and
// device. Errors use name for the file.
func ReadTimes(r io.Reader, name string) ([]time.Duration, error) {
	var list inferences
	if err := read(r, name, "a list of times, as trtexec --exportTimes writes it", &list); err != nil {
		return nil, err
	}
	times := make([]time.Duration, len(list))
	for i := range list {
		times[i] = duration(list[i].Compute)
	}
	return times, nil
}
