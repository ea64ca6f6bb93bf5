package formats

import (
	"fmt"
	"slices"

	"inferplan/formats/document"
)

// maxElements bounds a tensor of one sample: workers map memory for a batch of them.
const maxElements = 1 << 30

// checkTensors reports to c what is wrong with the declared inputs or outputs of a model: names, data types, and
// shapes.
func checkTensors(c *document.Checker, list []TensorInfo, path string) {
	indexByName := map[string]int{}
	for i := range list {
		t := &list[i]
		c.Name(indexByName, i, t.Name, "%s[%d].name", path, i)
		if !slices.Contains(dtypes, t.DType) {
			c.OneOf(fmt.Sprintf("%s[%d].dtype", path, i), t.DType, dtypes...)
		}
		for k, dim := range t.Shape {
			if dim < -1 || dim == 0 {
				c.Failf(document.FormatWhole(dim), "a positive size, or -1 for a free one", "", "%s[%d].shape[%d]", path, i, k)
			}
		}

		// A tensor is not too large, and its free dimensions were measured at a size.
		elements := 1.0
		for _, dim := range t.Shape {
			elements *= max(float64(dim), 1)
		}
		if elements > maxElements {
			c.Failf(fmt.Sprintf("%g elements", elements), fmt.Sprintf("at most %d", maxElements), "", "%s[%d].shape", path, i)
		}
		for k, axis := range t.DynamicAxes {
			if axis < 0 || axis >= len(t.Shape) || t.Shape[axis] < 1 || k > 0 && axis <= t.DynamicAxes[k-1] {
				c.Failf(document.FormatWhole(axis), "dimensions of the shape that have a size, ascending", "", "%s[%d].dynamic_axes[%d]", path, i, k)
			}
		}
	}
}

// checkConstants reports to c constant inputs of a model that do not have exactly one value.
func checkConstants(c *document.Checker, list []TensorInfo, path string) {
	checkTensors(c, list, path)
	for i := range list {
		if t := &list[i]; len(t.Value) != 1 || len(t.Shape) > 0 {
			c.Failf(fmt.Sprintf("%d values of %d dimensions", len(t.Value), len(t.Shape)), "one value without dimensions", "", "%s[%d]", path, i)
		}
	}
}

// dtypes are the names of the Open Inference Protocol.
var dtypes = []string{"BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16", "BYTES"}
