package recorded

import (
	"fmt"
	"os"
	"path/filepath"

	"inferplan/formats"
	"inferplan/formats/importer/blocks"
	"inferplan/testkit/reference"
)

// PlansFile is the name of the file of the artifact's plans.
const PlansFile = "reference_plans_dev.json"

// open opens a file of the artifact in the folder of all data.
func open(data, name string) (*os.File, error) {
	f, err := os.Open(filepath.Join(data, "ppipe", name))
	if err != nil {
		return nil, fmt.Errorf("opening the reference data (-data or INFERPLAN_DATA): %w", err)
	}
	return f, nil
}

// Profile reads the measurements of 18 models in blocks on four kinds of device.
func Profile(data string) (*formats.Profile, error) {
	latency, err := open(data, "block_latency.csv")
	if err != nil {
		return nil, err
	}
	defer latency.Close()
	cuts, err := open(data, "cut_sizes.csv")
	if err != nil {
		return nil, err
	}
	defer cuts.Close()
	return blocks.Read(latency, "block_latency.csv", cuts, "cut_sizes.csv", nil, "block_latency.csv")
}

// Plans reads the plans of the artifact.
func Plans(data string) ([]reference.Plan, error) {
	f, err := open(data, PlansFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return reference.Read(f, PlansFile)
}
