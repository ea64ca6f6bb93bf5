package formats

import (
	"encoding/json"
	"slices"
	"testing"

	"inferplan/formats/document"
)

// The schema of grid allows what is taken, no more and no less.
func TestGridIsWhatTheSchemaSays(t *testing.T) {
	var schema struct {
		Defs map[string]struct {
			Properties map[string]struct{ Minimum, Maximum int }
		} `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(schemaFile("workload.cascade")), &schema); err != nil {
		t.Fatal(err)
	}
	grid := schema.Defs["Cascade"].Properties["grid"]
	if grid.Minimum != 2 || grid.Maximum != MaxGrid {
		t.Errorf("the schema has %d to %d", grid.Minimum, grid.Maximum)
	}
	for n, ok := range map[int]bool{-1: false, 1: false, 2: true, MaxGrid: true, MaxGrid + 1: false} {
		c := Cascade{Family: []string{"a"}, SLO: CascadeSLO{Accuracy: .9}, QPS: CascadeQPS{Max: 1, Ranges: 1, Distribution: "zipf"}, Grid: n}
		var check document.Checker
		c.check(&check)
		refused := slices.ContainsFunc(document.Findings(check.Err()), func(e *document.Error) bool { return e.Path == "cascade.grid" })
		if refused == ok {
			t.Errorf("grid %d: refused %v", n, refused)
		}
	}
}
