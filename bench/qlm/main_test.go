package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"inferplan/bench/figures"
)

// TestSmallTables makes the small cases, and again from what was kept.
func TestSmallTables(t *testing.T) {
	dir := t.TempDir()
	var first, second, log strings.Builder
	args := []string{"-small", "-tables", "exact,replan", "-o", dir, "-figures", filepath.Join(dir, "figures.json")}
	if err := run(context.Background(), args, &first, &log); err != nil {
		t.Fatal(err, log.String())
	}
	if err := run(context.Background(), args, &second, &log); err != nil {
		t.Fatal(err, log.String())
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

func TestUnknownTable(t *testing.T) {
	for _, args := range [][]string{{"-tables", "x"}, {"-parts", "x"}, {"-nothing"}} {
		var out, log strings.Builder
		if err := run(context.Background(), append(args, "-o", t.TempDir()), &out, &log); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
