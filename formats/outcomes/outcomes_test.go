package outcomes_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	vegeta "github.com/tsenart/vegeta/v12/lib"

	"inferplan/formats"
	"inferplan/formats/outcomes"
)

var list = []outcomes.Outcome{
	{ModelClass: formats.ModelClass{Model: "b", Class: "chat"}, Due: 2 * time.Second, Reason: "deadline"},
	{ModelClass: formats.ModelClass{Model: "a"}, Due: time.Second, Latency: 20 * time.Millisecond},
	{ModelClass: formats.ModelClass{Model: "a"}, Due: 2500 * time.Millisecond, Latency: 90 * time.Millisecond, Late: true},
}

// What is written can be read again, in the order of time.
func TestOutcomesAreReadAgain(t *testing.T) {
	var out bytes.Buffer
	if err := outcomes.Write(&out, "csv", "", list); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "outcomes.csv")
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := outcomes.ReadFile(path)
	if d := cmp.Diff([]outcomes.Outcome{list[1], list[0], list[2]}, got); err != nil || d != "" {
		t.Error(err, d)
	}
}

// The decoder of vegeta reads the lines.
func TestVegetaReadsOutcomes(t *testing.T) {
	var out bytes.Buffer
	if err := outcomes.Write(&out, "vegeta", "http://h/v2", list); err != nil {
		t.Fatal(err)
	}
	type line struct {
		attack  string
		code    uint16
		at      int64 // nanoseconds
		latency time.Duration
		reason  string
	}
	var got []line
	decoder := vegeta.NewJSONDecoder(&out)
	for {
		var r vegeta.Result
		if err := decoder.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got = append(got, line{r.Attack, r.Code, r.Timestamp.UnixNano(), r.Latency, r.Error})
	}
	want := []line{{"a", 200, 1e9, 20 * time.Millisecond, ""}, {"b/chat", 503, 2e9, 0, "deadline"}, {"a", 200, 2.5e9, 90 * time.Millisecond, "late"}}
	if !slices.Equal(got, want) {
		t.Errorf("vegeta reads %v, expected %v", got, want)
	}
}

func TestBrokenOutcomesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"a,b\n": "t_s",
		"t_s,model,class,outcome,latency_us,reason\n":                       "no request",
		"t_s,model,class,outcome,latency_us,reason\n1,a,,gone,1,\n":         "in_time, late or dropped",
		"t_s,model,class,outcome,latency_us,reason\n1,a,,in_time,1,queue\n": "only then",
		"t_s,model,class,outcome,latency_us,reason\nx,a,,in_time,1,\n":      "t_s",
	} {
		path := filepath.Join(t.TempDir(), "outcomes.csv")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := outcomes.ReadFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: found %v, expected %q", text, err, want)
		}
	}
}
