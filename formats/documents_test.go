package formats

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inferplan/formats/document"
)

var update = flag.Bool("update", false, "write the golden files anew")

const compat = "../testdata/compat/"

// TestOldDocumentsAreRead reads one file of every kind and version, for ever:
// files are added here, never changed. Writing what was read gives a document
// that reads the same.
func TestOldDocumentsAreRead(t *testing.T) {
	files, err := filepath.Glob(compat + "*")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, ".csv") {
			continue // arrivals reads that one
		}
		kind, doc, err := Read(file)
		if err != nil {
			t.Error(err)
			continue
		}
		seen[kind] = true
		data, err := document.Marshal(doc)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		_, again, err := Decode(data, "again.json")
		if err != nil {
			t.Errorf("%s: what was written does not read: %v\n%s", file, err, data)
			continue
		}
		if !reflect.DeepEqual(doc, again) {
			t.Errorf("%s: reads differently after writing: %s", file, cmp.Diff(doc, again))
		}
	}
	for _, k := range Kinds() {
		if !seen[k] {
			t.Errorf("no file of a %s", k)
		}
	}
}

// TestExamplesSayWhatTheyMean checks the values behind the examples of the
// design, not only that they read.
func TestExamplesSayWhatTheyMean(t *testing.T) {
	c, err := ReadCluster("../testdata/formats/good/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := []Pool{
		{Device: "L4", Count: 25, MaxShares: 4, PerNode: 1, NICGbps: 6, Memory: 24 << 30, USDPerHour: 0.71, Watts: 72},
		{Device: "P4", Count: 75, MaxShares: 1, PerNode: 1, NICGbps: 6},
	}
	if diff := cmp.Diff(want, c.Pools); diff != "" {
		t.Error(diff)
	}
	w, err := ReadWorkload("../testdata/formats/good/workload.yaml")
	if err != nil {
		t.Fatal(err)
	}
	wantModels := []WorkloadModel{
		{Model: "efficientnet-b8", SLO: document.SLO{Duration: 165577200 * time.Nanosecond}, Weight: 0.3, BatchBuildRPS: 277.38},
		{Model: "encnet", SLO: document.SLO{Duration: 87047400 * time.Nanosecond}, Weight: 0.33},
	}
	if diff := cmp.Diff(wantModels, []WorkloadModel(ModelsOf(w))); diff != "" {
		t.Error(diff)
	}
	if w.Arrivals.Process != "poisson" {
		t.Errorf("arrivals %+v", w.Arrivals)
	}
	w, err = ReadWorkload("../testdata/formats/good/cascade.yaml")
	if err != nil {
		t.Fatal(err)
	}
	wantCascade := &Cascade{
		Family: []string{"digits-4", "digits-16", "digits-64", "digits-256", "digits-conv"},
		SLO:    CascadeSLO{Latency: document.SLO{Duration: 400 * time.Millisecond}, Percentile: "p95"},
		QPS:    CascadeQPS{Max: 7600, Ranges: 10, Distribution: "zipf"},
		Grid:   10,
	}
	if diff := cmp.Diff(wantCascade, CascadeOf(w)); diff != "" {
		t.Error(diff)
	}
	w, err = ReadWorkload("../testdata/formats/good/block-style.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if ModelsOf(w)[0].SLO.Factor != 5 || ModelsOf(w)[1].SLO.Duration != 1500*time.Millisecond || w.Arrivals.CV != 2.5 {
		t.Errorf("%+v", w)
	}
}

// TestBadDocuments holds the messages for bad input: each file of
// testdata/formats/bad beside what it must say. {parts} stands for what a workload may ask
// for, by the table.
func TestBadDocuments(t *testing.T) {
	files, err := filepath.Glob("../testdata/formats/bad/*")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".want") {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, doc, err := Decode(data, filepath.Base(file))
			if err == nil {
				t.Fatalf("reads as %+v", doc)
			}
			if doc != nil && !reflect.ValueOf(doc).IsNil() {
				t.Error("a bad document is returned beside the error")
			}
			for _, e := range document.Findings(err) {
				if e.File == "" || e.Line < 1 || e.Column < 1 {
					t.Errorf("no position: %#v", e)
				}
			}
			got := strings.ReplaceAll(err.Error()+"\n", document.List(document.Map(workloadParts, func(p *workloadPart) string { return p.name })), "{parts}")
			golden := file + ".want"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLayoutOfPlanStays pins how documents look: people read and review them.
func TestLayoutOfPlanStays(t *testing.T) {
	p, err := ReadPlan(compat + "plan.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := document.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	golden := "../testdata/formats/layout-plan.json"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
	for i, line := range bytes.Split(got, []byte("\n")) {
		if len(line) > 110+20 {
			t.Errorf("line %d has %d columns", i+1, len(line))
		}
	}
}

func TestReadOfAnotherKind(t *testing.T) {
	_, err := ReadCluster(compat + "workload.v1.yaml")
	if err == nil || !strings.Contains(err.Error(), "this file is a workload; give a cluster here") || document.Findings(err) == nil {
		t.Errorf("got %v", err)
	}
	_, err = ReadCluster("no/such/file.yaml")
	if err == nil || document.Findings(err) != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// What begins like no text is refused at its beginning: a device never ends.
func TestReadOfNoText(t *testing.T) {
	for path, want := range map[string]string{
		"/dev/zero":    "binary data (a zero byte), expected a text",
		"/dev/urandom": "expected a ",
		".":            "found a folder, expected a file",
	} {
		if _, err := ReadPlan(path); err == nil || !strings.Contains(err.Error(), want) || document.Findings(err) == nil {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
