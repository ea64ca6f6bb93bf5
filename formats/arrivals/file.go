package arrivals

import (
	"fmt"

	"inferplan/formats/csvfile"
)

func open(path string) (*csvfile.File, error) {
	f, err := csvfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading arrivals: %w", err)
	}
	return f, nil
}
