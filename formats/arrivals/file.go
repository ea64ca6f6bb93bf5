package arrivals

import (
	"fmt"

	"inferplan/formats/csvfile"
)

// open opens a CSV file of arrivals. Its errors say that arrivals were read.
func open(path string) (*csvfile.File, error) {
	f, err := csvfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading arrivals: %w", err)
	}
	return f, nil
}
