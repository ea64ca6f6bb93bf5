package sources

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// exception lets the files below a path name a tool, for another reason than to read its files.
type exception struct{ tool, path, reason string }

var exceptions = []exception{
	{"vLLM", "engine/llm/", "the client of servers speaks to them"},
	{"vLLM", "executor/completions/", "the front end understands extensions of the API that these servers have"},
	{"vLLM", "executor/text/queuemetrics.go", "the series are named as those servers name theirs"},
	{"vLLM", "formats/importer/llmruns/", "the settings of a server that ran are read by instruments, too"},
	{"vLLM", "formats/queue_workload.go", "the order of priorities is that of servers"},
	{"vLLM", "policy/balance/", "the policy is for servers that schedule so"},
	{"vLLM", "profiler/llmrun/run.go", "the profile names the engine that ran"},
	{"vLLM", "profiler/llmserver/", "a running server is measured"},
	{"vLLM", "sim/llm/", "the simulated scheduler is that of servers"},
	{"vLLM", "testkit/llm/", "the server for tests behaves like one"},
	{"vLLM", "bench/", "instruments drive and imitate servers"},
	{"Prometheus", "engine/llm/", "the load of a server is read from its metrics"},
	{"Prometheus", "executor/", "the server has metrics in this form"},
	{"Prometheus", "cmd/plan/", "flags are about the server's metrics"},
	{"OpenTelemetry", "executor/tracing/", "the server sends spans in this form"},
	{"OpenTelemetry", "cmd/plan/tracing.go", "flags are about the spans that the server sends"},
	{"Triton", "executor/oip/", "the front end speaks the protocol of inference that came from there"},
	{"Triton", "formats/triton/", "the schema of model repositories is read and written"},
	{"Kubernetes", "bench/pods/", "the instrument runs servers as pods do"},
	{"Kubernetes", "cmd/plan/serve.go", "a flag is about how pods end"},
	{"Kubernetes", "executor/text/serversources.go", "host names of headless services have several addresses"},
	{"vLLM", "formats/llmcommand/", "the commands of running servers are read and written"},
	{"vLLM", "cmd/plan/profile.go", "a flag says which servers can be measured"},
	{"Envoy", "bench/qlm/rules/", "the rule of the baseline is named after where it is used"},
	{"DistServe", "formats/iteration.go", "the paper that the formula is from is cited"},
	{"Azure", "bench/", "instruments replay the published trace"},
	{"Azure", "policy/vqueue/pause.go", "the data on which the constants were chosen is cited"},
	{"Mooncake", "bench/", "instruments replay the published trace"},
	{"DistServe", "bench/qlm/", "the measurements that the instrument reads are cited"},
	{"Splitwise", "bench/qlm/", "the measurements that the instrument reads are cited"},
	{"Vidur", "bench/qlm/", "the measurements that the instrument reads are cited"},
	{"LLM-Inference-Bench", "bench/qlm/", "the measurements that the instrument reads are cited"},
}

// outside are folders that are about tools: documents, examples and plans for other engines. Other people's programs are
// in third_party.
var outside = []string{"importers/", "docs/", "examples/", "export/", "third_party/"}

// No file outside of importers names a tool whose files are read, unless an exception says why. Every exception is used.
func TestNoFileOutsideNamesATool(t *testing.T) {
	tools := map[string]bool{}
	for _, s := range table {
		for _, tool := range s.tools {
			tools[tool] = true
		}
	}
	isUsed := make([]bool, len(exceptions))
	const root = "../.."
	count := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			for _, folder := range outside {
				if name+"/" == folder {
					return filepath.SkipDir
				}
			}
			if strings.HasPrefix(entry.Name(), ".") && name != "." {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		count++
		text := strings.ToLower(string(data))
		for tool := range tools {
			at := indexOfWord(text, strings.ToLower(tool))
			if at < 0 {
				continue
			}
			isAllowed := false
			for i, e := range exceptions {
				if e.tool == tool && strings.HasPrefix(name, e.path) {
					isUsed[i], isAllowed = true, true
				}
			}
			if !isAllowed {
				t.Errorf("%s:%d names %s: what knows the tool belongs to its folder below importers", name, 1+strings.Count(text[:at], "\n"), tool)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if count < 500 {
		t.Fatalf("only %d files: the search is broken", count)
	}
	for i, e := range exceptions {
		if !isUsed[i] || e.reason == "" || !tools[e.tool] {
			t.Errorf("the exception for %s in %s is used: %v, or lacks its reason or tool", e.tool, e.path, isUsed[i])
		}
	}
}

// indexOfWord returns where text has a word without a letter before or behind it, or -1.
func indexOfWord(text, word string) int {
	isLetter := func(i int) bool { return i >= 0 && i < len(text) && text[i] >= 'a' && text[i] <= 'z' }
	for at := 0; ; at++ {
		i := strings.Index(text[at:], word)
		if i < 0 {
			return -1
		}
		if at += i; !isLetter(at-1) && !isLetter(at+len(word)) {
			return at
		}
	}
}

// What a sample is recognised as has the name of a tool of each importer that recognises it.
func TestSamplesHaveTheNamesOfTools(t *testing.T) {
	samples, err := filepath.Glob("../*/testdata/*.*")
	if err != nil || len(samples) < 18 {
		t.Fatal(samples, err)
	}
	for _, path := range samples {
		head, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range table {
			i := s.newImporter()
			if i.Recognize == nil {
				continue
			}
			found := i.Recognize(head)
			isNamed := found == ""
			for _, tool := range s.tools {
				isNamed = isNamed || strings.Contains(strings.ToLower(found), strings.ToLower(tool))
			}
			if !isNamed {
				t.Errorf("%s: %q has none of the names %q of %s", path, found, s.tools, i.Usage)
			}
		}
	}
}
