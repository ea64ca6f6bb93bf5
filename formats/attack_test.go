package formats

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"inferplan/cputime"
	"inferplan/formats/document"
)

// hostile are documents that took minutes or gigabytes, by their number of parts.
var hostile = []struct {
	name string
	ext  string
	n    int
	make func(n int) string
}{
	{"unknown fields", ".json", 20_000, func(n int) string {
		var b strings.Builder
		b.WriteString(`{"format":"inferplan.plan/v1"`)
		for i := range n {
			fmt.Fprintf(&b, `,"k%d":0`, i)
		}
		return b.String() + "}"
	}},
	{"a list of numbers for models", ".json", 200_000, func(n int) string {
		return `{"format":"inferplan.plan/v1","models":[` + strings.Repeat("0,", n) + "0]}"
	}},
	{"objects with unknown fields", ".json", 20_000, func(n int) string {
		return `{"format":"inferplan.plan/v1","models":[` + strings.Repeat(`{"modle":"a","b":[{}],"c":1},`, n) + "{}]}"
	}},
	{"one unknown field and many known ones missing, on lines", ".json", 20_000, func(n int) string {
		return `{"format":"inferplan.plan/v1","models":[` + strings.Repeat("{\n\"x\":\n1},", n) + "{}]}"
	}},
	{"empty lists", ".json", 400_000, func(n int) string {
		return `{"format":"inferplan.plan/v1","x":[` + strings.Repeat("[],", n) + "0]}"
	}},
	{"numbers", ".json", 400_000, func(n int) string {
		return `{"format":"inferplan.plan/v1","pools":[` + strings.Repeat("{},", n) + "{}]}"
	}},
	{"keys of YAML", ".yaml", 6_000, func(n int) string {
		var b strings.Builder
		b.WriteString("format: inferplan.workload/v1\n")
		for i := range n {
			fmt.Fprintf(&b, "k%d: 0\n", i)
		}
		return b.String()
	}},
	{"keys of YAML in braces", ".yaml", 20_000, func(n int) string { return "a: {" + strings.Repeat("\"\":\n", n) }},
	{"quotes", ".yaml", 100_000, func(n int) string { return strings.Repeat(`"`, n) }},
	{"pairs of quotes", ".yaml", 30_000, func(n int) string { return strings.Repeat(`"" `, n) }},
	{"directives", ".yaml", 20_000, func(n int) string { return "a: [" + strings.Repeat("%a\n", n) }},
	{"blank lines of a block", ".yaml", 60_000, func(n int) string { return "a: |\n" + strings.Repeat(" \n", n) }},
	{"empty lines of a folded text", ".yaml", 120_000, func(n int) string { return "a: >\n" + strings.Repeat("\n", n) + "  x\nb: ]" }},
	{"comments", ".yaml", 60_000, func(n int) string { return strings.Repeat("#\n", n) + "a: 1" }},
	{"brackets", ".yaml", 60_000, func(n int) string { return strings.Repeat("[", n) }},
	{"lists of lists", ".yaml", 60_000, func(n int) string { return strings.Repeat("- ", n) }},
	{"questions", ".yaml", 60_000, func(n int) string { return strings.Repeat("? ", n) }},
	{"tags", ".yaml", 60_000, func(n int) string { return strings.Repeat("! ", n) }},
	{"anchors", ".yaml", 40_000, func(n int) string { return strings.Repeat("&a ", n) }},
	{"aliases", ".yaml", 8_000, func(n int) string { return "a: &a [0]\nb: [" + strings.Repeat("*a,", n) + "]" }},
	{"objects in braces", ".yaml", 6_000, func(n int) string { return "a: [" + strings.Repeat("{b: 1},", n) + "]" }},
	{"words", ".yaml", 60_000, func(n int) string { return "a: " + strings.Repeat("b ", n) + "\nb: ]" }},
	{"documents", ".yaml", 6_000, func(n int) string { return strings.Repeat("---\n", n) }},
	{"models of YAML", ".yaml", 1_500, func(n int) string {
		return "format: inferplan.workload/v1\nmodels:\n" + strings.Repeat("- {modl: a, slo: 100ms, weight: 0.30}\n", n)
	}},
}

// TestWorkIsBoundedByBytes reads documents of one and of four times a size. Linear
// work takes four times as long, quadratic work sixteen times; the test fails above ten.
func TestWorkIsBoundedByBytes(t *testing.T) {
	for _, c := range hostile {
		t.Run(c.name, func(t *testing.T) {
			best := func(text string) time.Duration {
				d := time.Duration(math.MaxInt64)
				for range 4 {
					before := cputime.Used()
					if _, _, err := Decode([]byte(text), "x"+c.ext); err == nil {
						t.Fatal("the document is taken")
					}
					d = min(d, cputime.Used()-before)
				}
				return max(d, 2*time.Millisecond)
			}
			// Other work on the machine makes a single comparison too large at times.
			var small, large time.Duration
			for range 4 {
				if small, large = best(c.make(c.n)), best(c.make(4*c.n)); large <= 10*small {
					return
				}
			}
			t.Errorf("4 times the text takes %.1f times as long (%v, %v)", float64(large)/float64(small), small, large)
		})
	}
}

// TestMemoryIsBoundedByBytes looks at the heap while files are read, with a
// collector that runs often.
func TestMemoryIsBoundedByBytes(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	dir := t.TempDir()
	for _, c := range hostile {
		if c.ext != ".json" {
			continue
		}
		path := filepath.Join(dir, "x.json")
		size := 0
		func() { // the text is no part of what is measured
			text := c.make(16 * c.n)
			size = len(text)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}()
		// What the collector has not looked at yet counts, too: on a busy machine a
		// single reading shows too much at times, and three have shown .1 % too much.
		got := int64(math.MaxInt64)
		for range 10 {
			if got = min(got, heapOfReading(t, path, heap)); got <= 8*int64(size) {
				break
			}
		}
		if got > 8*int64(size) {
			t.Errorf("%s: %d bytes of text take %d (%.1f times)", c.name, size, got, float64(got)/float64(size))
		} else {
			t.Logf("%s: %.1f times", c.name, float64(got)/float64(size))
		}
	}
}

// heapOfReading reads a document that is refused and returns the most bytes that it took
// of the heap meanwhile.
func heapOfReading(t *testing.T, path string, heap func() uint64) int64 {
	t.Helper()
	runtime.GC()
	before, most := heap(), uint64(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, _, err := Read(path); err == nil {
			t.Error("the document is taken")
		}
	}()
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		case <-time.After(2 * time.Millisecond):
			most = max(most, heap())
		}
	}
	return int64(most - min(before, most))
}

func TestFindingsAreFewAndInTheirPlace(t *testing.T) {
	text := `{"format":"inferplan.plan/v1",` + strings.Repeat("\n", 3*(64<<10)) + `"a":1,` + "\n  " + `"b":1,"modles":[]`
	for i := range 1000 {
		text += fmt.Sprintf(`,"k%d":0`, i)
	}
	_, _, err := Decode([]byte(text+"}"), "x.json")
	list := document.Findings(err)
	if len(list) != maxFindings+1 || !strings.Contains(list[maxFindings].Found, "more than 20 findings") {
		t.Fatalf("%d findings: %v", len(list), err)
	}
	for i, want := range []string{"x.json:196609:1: a: ", "x.json:196610:3: b: ", "x.json:196610:9: modles: "} {
		if got := list[i].Error(); !strings.HasPrefix(got, want) {
			t.Errorf("found %q, expected %q", got, want)
		}
	}
	if list[2].Hint != "did you mean models?" {
		t.Errorf("hint %q", list[2].Hint)
	}
}

func TestLargeDocumentsAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(path, []byte(`{"format":"inferplan.plan/v1"`+strings.Repeat(" ", 100<<10)+"}"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer document.SetMaxDocument(document.DefaultMaxDocument)
	document.SetMaxDocument(100_000)
	if _, _, err := Read(path); err == nil || !strings.Contains(err.Error(), "plan.json: found more than 100kB") || !strings.Contains(err.Error(), "--max-document") {
		t.Errorf("over the limit: %v", err)
	}
	document.SetMaxDocument(200 << 10)
	if _, _, err := Read(path); err == nil || strings.Contains(err.Error(), "100kB") || strings.Contains(err.Error(), "max-document") {
		t.Errorf("below the limit: %v", err)
	}
}
