package formats_test

import (
	"errors"
	"fmt"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// A workload as a person writes it: the SLO is a time or a multiple of the model's own.
func ExampleDecode() {
	kind, doc, err := formats.Decode([]byte(`
format: inferplan.workload/v1
models:
- {model: detector, slo: 120ms, weight: 0.75}
- {model: classifier, slo: 5x, weight: 0.25}
`), "workload.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(kind)
	for _, m := range doc.(*formats.Workload).Section.(formats.WorkloadModels) {
		fmt.Println(m.Model, m.SLO.Resolve(20*time.Millisecond), m.Weight)
	}
	// Output:
	// workload
	// detector 120ms 0.75
	// classifier 100ms 0.25
}

// An error names the file, the place and the field.
func ExampleError() {
	_, _, err := formats.Decode([]byte(`{"format": "inferplan.cluster/v1", "pools": [{"device": "L4", "count": 2, "nic_gpbs": 6}]}`), "cluster.json")
	var bad *document.Error
	if errors.As(err, &bad) {
		fmt.Println(bad.Path)
	}
	fmt.Println(err)
	// Output:
	// pools[0].nic_gpbs
	// cluster.json:1:75: pools[0].nic_gpbs: an unknown field
	//   hint: did you mean nic_gbps?
}
