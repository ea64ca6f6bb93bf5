package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"inferplan/bench/figures"
)

// The small cases are measured, and again from what was kept.
func TestSmallTables(t *testing.T) {
	dir := t.TempDir()
	var first, second, log strings.Builder
	args := []string{"-small", "-parts", "exact,replan", "-keep", dir, "-figures", filepath.Join(dir, "figures.json")}
	for _, out := range []*strings.Builder{&first, &second} {
		if err := (&bench{}).instrument().Run(context.Background(), args, out, &log); err != nil {
			t.Fatal(err, log.String())
		}
	}
	if first.String() != second.String() {
		t.Errorf("kept results give another table:\n%s\n%s", first.String(), second.String())
	}
	list, err := figures.Read(filepath.Join(dir, "figures.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 10 {
		t.Fatalf("%d figures", len(list))
	}
	for _, f := range list {
		if f.Holds != figures.Yes && !strings.Contains(f.Unit, "CPU") { // speed is not for tests
			t.Errorf("%+v", f)
		}
	}
}
