package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// On a terminal of 80 columns no line of a table is longer.
func TestTablesFitNarrowTerminals(t *testing.T) {
	header := []string{"model", "pipeline (blocks)", "batch", "devices", "rps", "whole ms", "", "certified rps", "service ms", "p99 ms", "SLO ms"}
	rows := [][]string{
		{"resnet50", "[0,5) > [5,10)", "1", "1 x cpu-1 (86 % of the time) > 2 x 1/2 L4", "8.71", "93.37", "±1.9 %", "7.40", "99.15", "929.7", "1000.0"},
		{"", "[0,10)", "4", "1 x cpu-1", "8.71", "", "", "", "99.15", "", "1000.0"},
	}
	var out bytes.Buffer
	p := &printer{out: &out, width: 80}
	if err := p.PrintTable("llrlrrrrrrr", header, rows); err != nil {
		t.Fatal(err)
	}
	want := `resnet50
  pipeline (blocks) [0,5) > [5,10), batch 1,
    devices 1 x cpu-1 (86 % of the time) > 2 x 1/2 L4, rps 8.71,
    whole ms 93.37 ±1.9 %, certified rps 7.40, service ms 99.15, p99 ms 929.7,
    SLO ms 1000.0
  pipeline (blocks) [0,10), batch 4, devices 1 x cpu-1, rps 8.71,
    service ms 99.15, SLO ms 1000.0
`
	if out.String() != want {
		t.Errorf("found\n%sexpected\n%s", out.String(), want)
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	out.Reset()
	p.width = 0 // no terminal
	if err := p.PrintTable("llrlrrrrrrr", header, rows); err != nil || !strings.Contains(out.String(), "───") {
		t.Errorf("no table outside a terminal (%v):\n%s", err, out.String())
	}
}
