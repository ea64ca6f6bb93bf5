package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// commandsOf returns the commands of all containers in a document.
func commandsOf(value any) (list [][]string) {
	switch v := value.(type) {
	case map[string]any:
		command, ok := v["command"].([]any)
		if args, hasArgs := v["args"].([]any); ok && hasArgs {
			var words []string
			for _, w := range append(command, args...) {
				words = append(words, w.(string))
			}
			return [][]string{words}
		}
		for _, inner := range v {
			list = append(list, commandsOf(inner)...)
		}
	case []any:
		for _, inner := range v {
			list = append(list, commandsOf(inner)...)
		}
	}
	return list
}

// What exported containers run are verbs of this program with flags that they have.
func TestExportedContainersRunOurVerbs(t *testing.T) {
	verbs := map[string]int{}
	for _, args := range []string{
		"plan.v2.json --max-copies 3 --copies 2", "plan-flow.v2.json", "plan-gear.v2.json --variant pod", "plan-gear.v2.json --variant kserve",
		"plan-queue.v2.json --server http://a --server http://b", "plan-queue.v2.json --server http://a --server http://b --queue nats://a:4222",
	} {
		dir := filepath.Join(t.TempDir(), "out")
		words := strings.Fields("export kubernetes ../../testdata/compat/" + args)
		var out, stderr bytes.Buffer
		if code := executeCommand(context.Background(), append(words, "-o", dir), &out, &stderr); code != 0 {
			t.Fatalf("%s: exit %d, %s", args, code, stderr.String())
		}
		paths, err := filepath.Glob(filepath.Join(dir, "base/*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for part := range strings.SplitSeq(string(data), "\n---\n") {
				var document any
				if err := yaml.Unmarshal([]byte(part), &document); err != nil {
					t.Fatal(err)
				}
				for _, command := range commandsOf(document) {
					if command[0] == "sh" { // one word of the shell stands for another here
						command = strings.Fields(strings.TrimPrefix(strings.ReplaceAll(command[2], "##*-} / ", ""), "exec "))
					}
					verb, rest, err := newRootCommand().Find(command[1:])
					if err == nil {
						err = verb.ParseFlags(rest)
					}
					if command[0] != "plan" || err != nil {
						t.Errorf("%s: %q: %v", filepath.Base(path), command, err)
						continue
					}
					verbs[verb.Name()]++
				}
			}
		}
	}
	if verbs["serve"] != 6 || verbs["worker"] != 3 || verbs["agent"] != 2 {
		t.Errorf("containers by verb: %v", verbs)
	}
}
