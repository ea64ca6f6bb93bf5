package bundletest

import (
	"os"
	"path/filepath"
	"testing"

	"inferplan/formats"
	"inferplan/formats/importer/blocks"
	"inferplan/testkit/reference"
)

// Dir is the folder of the data: ppipe/ in INFERPLAN_DATA, else in
// ../shared/data beside the repository.
func Dir(t testing.TB) string {
	t.Helper()
	data := os.Getenv("INFERPLAN_DATA")
	if data == "" {
		data = filepath.Join(root(t), "..", "shared", "data")
	}
	dir := filepath.Join(data, "ppipe")
	if _, err := os.Stat(filepath.Join(dir, "reference_plans_dev.json")); err != nil {
		t.Skipf("the PPipe reference data is not here: set INFERPLAN_DATA to the folder that holds ppipe/ (%v)", err)
	}
	return dir
}

// root is the folder of go.mod.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = up
	}
}

// Profile reads the measurements of all 18 models.
func Profile(t testing.TB) *formats.Profile {
	t.Helper()
	dir := Dir(t)
	latency, cuts := open(t, filepath.Join(dir, "block_latency.csv")), open(t, filepath.Join(dir, "cut_sizes.csv"))
	p, err := blocks.Read(latency, "block_latency.csv", cuts, "cut_sizes.csv", nil, "block_latency.csv")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Plans reads the authors' plans.
func Plans(t testing.TB) []reference.Plan {
	t.Helper()
	const name = "reference_plans_dev.json"
	plans, err := reference.Read(open(t, filepath.Join(Dir(t), name)), name)
	if err != nil {
		t.Fatal(err)
	}
	return plans
}

func open(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
