package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"inferplan/importers/sources"
)

// importArgs are the arguments of each verb below plan import, with FILE in the place of its file.
var importArgs = map[string]string{
	"blocks":        "--latency FILE --cuts FILE",
	"kubernetes":    "FILE",
	"llm":           "FILE --device L4",
	"perf-analyzer": "FILE --name m --device L4 --batch 1",
	"pipeline":      "FILE --slo 1s",
	"records":       "FILE",
	"trace":         "FILE",
	"transitions":   "FILE --from spans",
	"triton":        "FILE",
	"trtexec":       "--run batch=1,times=FILE --name m --device L4",
	"vllm-run":      "--steps FILE --meta FILE --requests FILE",
	"workload":      "FILE --slo 1s",
}

// Every verb below plan import that is given a file of a tool which another verb reads refuses it, and says which tool
// wrote it and which verb reads it.
func TestImportersNameTheFilesOfOthers(t *testing.T) {
	samples, err := filepath.Glob("../../importers/*/testdata/*.*")
	if err != nil || len(samples) < 20 {
		t.Fatal(samples, err)
	}
	for i, path := range samples {
		if samples[i], err = filepath.Abs(path); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(t.TempDir())
	count := 0
	for _, importer := range sources.All() {
		verb, _, _ := strings.Cut(importer.Usage, " ")
		arguments, isListed := importArgs[verb]
		if !isListed {
			t.Errorf("importArgs lacks %s", verb)
			continue
		}
		if verb == "triton" {
			continue // it reads folders, which no tool of another verb writes
		}
		for _, path := range samples {
			name, verbs := sources.Recognize(path)
			if slices.Contains(verbs, verb) {
				continue
			}
			args := append([]string{"import", verb}, strings.Fields(strings.ReplaceAll(arguments, "FILE", path))...)
			var out, stderr bytes.Buffer
			code := executeCommand(t.Context(), append(args, "-o", "out.json"), &out, &stderr)
			hint := path + " is " + name + ": plan import " + verbs[0] + " " + path
			if code != exitUsage || !strings.Contains(stderr.String(), hint) {
				t.Errorf("plan %s: exit %d, expected %d and %q: %s", strings.Join(args, " "), code, exitUsage, hint, stderr.String())
			}
			if _, err := os.Stat("out.json"); err == nil {
				t.Fatalf("plan %s wrote a document", strings.Join(args, " "))
			}
			count++
		}
	}
	if count < 150 {
		t.Errorf("only %d pairs", count)
	}
}
