package sim

import (
	"bytes"
	"strings"
	"testing"

	"inferplan/policy"
)

// A trace names servers on one device and on two devices of a kind apart.
func TestTraceNamesServersOfTwoSizes(t *testing.T) {
	var b bytes.Buffer
	trace := newChromeTrace(&b, &policy.Tables{
		Kinds: []string{"A100", "A100"}, Devices: []policy.Device{{Share: 1}, {Kind: 1, Share: 1, GPU: 1, Instance: 1}},
		Instances: []policy.Instance{{DeviceCount: 1}, {DeviceCount: 2}},
	})
	trace.writer.Flush()
	for _, name := range []string{`"1 x A100"`, `"2 x A100"`, `"1 x A100 0"`, `"2 x A100 1"`} {
		if !strings.Contains(b.String(), name) {
			t.Errorf("no %s in %s", name, b.String())
		}
	}
}
