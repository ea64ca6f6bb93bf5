package perfanalyzer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The samples are the examples of perf_analyzer's documentation (docs/benchmarking.md) and of Model Analyzer's
// (docs/kubernetes_deploy.md).
func TestSamplesAreRead(t *testing.T) {
	for file, want := range map[string]string{
		"resnet_L4_b1.csv":            "[{ 0 1 12006000 false}]",
		"metrics-model-inference.csv": "[{resnet50_libtorch 1 1 8100000 true}]",
	} {
		data, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		got, err := readTimes(strings.NewReader(string(data)), file)
		if fmt.Sprint(got) != want || err != nil || recognize(data) == "" {
			t.Errorf("%s: found %v, %v, recognised as %q, expected %s", file, got, err, recognize(data), want)
		}
	}
}

const analyzerHeader = "Model,Batch,Concurrency,Model Config Path,Server Compute Input time (ms),Server Compute Infer time (ms),Server Compute Output time (ms),p99 Latency (ms)\n"

// Of several configurations the shortest time of one client counts, with the copies.
func TestFewestClientsAndShortestTimeCount(t *testing.T) {
	got, err := readTimes(strings.NewReader(analyzerHeader+"m,4,2,m_0,9,9,9,99\nm,4,1,m_0,0.5,3,0.25,9\nm,4,1,m_1,0.5,2,0.25,9\nm,8,1,m_1,1,4,0.5,9\n"), "a.csv")
	if want := "[{m 4 1 2750000 false} {m 8 1 5500000 false}]"; fmt.Sprint(got) != want || err != nil {
		t.Errorf("found %v, %v, expected %s", got, err, want)
	}
	for text, says := range map[string]string{
		"a,b\n1,2\n":                           "expected those of perf_analyzer",
		analyzerHeader + "m,4,2,m_0,9,9,9,9\n": "2 clients at least",
		analyzerHeader + "m,0,1,m_0,9,9,9,9\n": "a.csv:2:3: Batch",
		analyzerHeader + "m,1,1,m_0,0,0,0,9\n": "no time",
		analyzerHeader:                         "no row",
	} {
		if _, err := readTimes(strings.NewReader(text), "a.csv"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, expected %q", text, err, says)
		}
	}
}

func FuzzTimes(f *testing.F) {
	files, err := filepath.Glob("testdata/*.csv")
	if err != nil || len(files) < 2 {
		f.Fatal(files, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Fuzz(func(t *testing.T, text string) {
		times, err := readTimes(strings.NewReader(text), "a.csv")
		for _, x := range times {
			if err == nil && (x.elapsed <= 0 || x.concurrency != 1) {
				t.Fatalf("%+v", x)
			}
		}
	})
}
