package main

import (
	"bytes"
	"strings"
	"testing"

	"inferplan/planner/check"
)

// A model's name cannot break the table of a comment on a change.
func TestMarkdownCells(t *testing.T) {
	var out bytes.Buffer
	r := &check.Result{Metrics: []check.Comparison{{Metric: "rps", Subject: "a|b_<c>", Unit: "rps"}}}
	if err := gateMarkdown(&printer{out: &out}, r, "plan.json"); err != nil {
		t.Fatal(err)
	}
	if want := `| ok | rps | a\|b\_&lt;c> | 0 | 0 | rps | +0.00 % | 0 % |  |`; !strings.Contains(out.String(), want) {
		t.Errorf("%s\nholds no %s", out.String(), want)
	}
}
