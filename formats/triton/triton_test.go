package triton

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Hosts are the nodes of pools with a network, and one for all pools without, or one for each.
func TestHosts(t *testing.T) {
	pools := []formats.Pool{{Device: "L4", Count: 3, PerNode: 2, NICGbps: 10}, {Device: "T4", Count: 1}, {Device: "cpu-1", Count: 2}}
	for _, c := range []struct {
		shared   bool
		expected string
	}{
		{false, "[{L4-0 [{0 0} {0 1}] []} {L4-1 [{0 2}] []} {T4 [{1 0}] []} {cpu-1 [] [{2 0} {2 1}]}]"},
		{true, "[{L4-0 [{0 0} {0 1}] []} {L4-1 [{0 2}] []} {host [{1 0}] [{2 0} {2 1}]}]"},
	} {
		if got := fmt.Sprint(Hosts(pools, c.shared)); got != c.expected {
			t.Errorf("shared %v: %s\nwant %s", c.shared, got, c.expected)
		}
	}
	if got, want := fmt.Sprint(OneHost(pools)), "{host [{0 0} {0 1} {0 2} {1 0}] [{2 0} {2 1}]}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What is wrong with a configuration is said with its place.
func TestParseConfigErrors(t *testing.T) {
	for text, expected := range map[string]string{
		"name: 1":                      "f:1:7: found invalid value for string type: 1, expected the text form",
		"x: 1":                         "f:1:1: found unknown field: x, expected",
		"max_batch_size: 99999999999":  "f:1:17: found invalid value for int32 type: 99999999999",
		"instance_group { kind: CPU }": "found invalid value for enum type: CPU",
		"name: \"a\"\ninput {":         "f: found unexpected EOF",
	} {
		_, err := ParseConfig("f", []byte(text))
		if _, ok := errors.AsType[*document.Error](err); !ok || !strings.Contains(err.Error(), expected) {
			t.Errorf("%q: %v, want %s", text, err, expected)
		}
	}
}

// A configuration that is read and written is the same, and its text has one form.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`name: "a  b" max_batch_size: 4 input { name: "x" dims: [ 1, 2 ] } parameters { key: "  k" value { string_value: "v  w" } }`))
	f.Add([]byte(`ensemble_scheduling { step { model_name: "a" input_map { key: "x" value: "y" } } }`))
	f.Add([]byte(`instance_group [ { kind: KIND_GPU gpus: [ 0 ] } ]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig("f", text)
		if err != nil {
			return
		}
		first, err := FormatConfig(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseConfig("f", []byte(first))
		if err != nil || !proto.Equal(c, again) {
			t.Fatalf("%q became %q: %v", text, first, err)
		}
		for _, line := range strings.Split(first, "\n") {
			if name, _, _ := strings.Cut(strings.TrimLeft(line, " "), `"`); strings.Contains(name, "  ") {
				t.Errorf("two spaces in %q", line)
			}
		}
	})
}
