package formats

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"inferplan/formats/document"
)

// A size of zero is known, an absent one is not, and both stay what they are.
func TestCutOfNothing(t *testing.T) {
	const text = `{"format": "inferplan.profile/v1", "devices": [{"device": "d"}], "models": [{"model": "m",
		"blocks": [{"name": "a", "cut_bytes_fp16": 0}, {"name": "b", "cut_bytes_fp32": 0, "cut_bytes_fp16": 7}, {"name": "c"}],
		"measurements": [{"device": "d", "share": 1, "batch": 1, "blocks": [{"wall_us": 1}, {"wall_us": 1}, {"wall_us": 1}]}]}]}`
	p, err := DecodeProfile([]byte(text), "profile.json")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b := p.Models[0].Blocks
		if !b[0].CutBytesFP16.IsKnown() || b[0].CutBytesFP16.Bytes() != 0 || b[0].CutBytesFP32.IsKnown() {
			t.Errorf("first cut %+v, expected zero bytes in float16 and no word of float32", b[0])
		}
		if !b[1].CutBytesFP32.IsKnown() || b[1].CutBytesFP32.Bytes() != 0 || b[1].CutBytesFP16.Bytes() != 7 {
			t.Errorf("second cut %+v, expected zero bytes in float32 and 7 in float16", b[1])
		}
		if b[2].CutBytesFP32.IsKnown() || b[2].CutBytesFP16.IsKnown() {
			t.Errorf("last cut %+v, expected none", b[2])
		}
		var w bytes.Buffer
		if err := document.Write(&w, p); err != nil {
			t.Fatal(err)
		}
		if p, err = DecodeProfile(w.Bytes(), "profile.json"); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := json.Marshal(p.Models[0].Blocks[0]); err != nil || !strings.Contains(string(out), `"cut_bytes_fp16":0`) {
		t.Errorf("%s, %v", out, err)
	}
	for _, bad := range []string{"-1", "-9223372036854775808", "null", `"1"`, "1.5"} {
		if _, err := DecodeProfile([]byte(strings.Replace(text, `"cut_bytes_fp16": 0`, `"cut_bytes_fp16": `+bad, 1)), "profile.json"); err == nil || !strings.Contains(err.Error(), "cut_bytes_fp16") {
			t.Errorf("%s is taken: %v", bad, err)
		}
	}
}

// YAML knows 1e1 and 2.5e+0 as numbers, as JSON does; in quotes they are text.
func TestYAMLExponents(t *testing.T) {
	c, err := DecodeCluster([]byte("format: inferplan.cluster/v1\npools:\n- {device: \"1e1\", count: 4, nic_gbps: 1e1}\n- {device: L4, count: 1, nic_gbps: 2.5e+0}\n"), "c.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if c.Pools[0].NICGbps != 10 || c.Pools[1].NICGbps != 2.5 || c.Pools[0].Device != "1e1" {
		t.Errorf("found %+v", c.Pools)
	}
}
