package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"

	"inferplan/formats/importer/bundletest"
)

// The tables come out of the data, for one small case.
func TestTables(t *testing.T) {
	data := strings.TrimSuffix(bundletest.Dir(t), "/ppipe")
	for _, c := range []struct{ name, cases, want string }{
		{"recompute", ".", `PPipe +48 +48\n`},
		{"transfer", "^ablation/fcn/", `ablation/fcn/HC2/w1 +reactive +0\.\d+`},
		{"headline", "^maf21/G9/", "no recorded plan matches"},
	} {
		var out bytes.Buffer
		err := run(context.Background(), []string{"-data", data, "-tables", c.name, "-cases", c.cases, "-runs", "1", "-duration", "1s"}, &out)
		text := out.String()
		if err != nil {
			text += err.Error()
		}
		if !regexp.MustCompile(c.want).MatchString(text) {
			t.Errorf("%s: want %q in\n%s", c.name, c.want, text)
		}
	}
}

func TestErrors(t *testing.T) {
	for want, args := range map[string][]string{
		`-tables: found "pies", expected some of recompute,objective,load,transfer,headline`: {"-tables", "pies"},
		"-cases": {"-cases", "("},
		"-runs 0, -duration 30s and -cv 2: expected at least 1, and more than 0": {"-runs", "0"},
		"opening the reference data": {"-data", t.TempDir()},
	} {
		if err := run(context.Background(), args, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
}
