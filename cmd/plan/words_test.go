package main

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// libraryWords are words of the libraries that flags and documents are read with, which no message may have.
var libraryWords = regexp.MustCompile(`strconv|invalid syntax|(^|[^-.\w])(json|yaml|toml|csv|x509|asn1|tls|hex|time): |gzip: invalid|parsing "|parse "|pflag|cobra|viper|unmarshal|arg\(s\)|flag\(s\)|` +
	`reflect\.|goroutine|panic|invalid argument "|first path segment|missing protocol scheme|lookup |net/http|\bEOF\b|looking for beginning|character '`)

// wordsBase are command lines of verbs that end soon whatever a flag is, but for one flag. Verbs without one need no
// arguments.
var wordsBase = map[string]string{
	"plan agent":           "--queue nats://127.0.0.1:1 --server 0=http://127.0.0.1:1",
	"plan check":           "plan.json --no-solve",
	"plan diff":            "plan.json plan.json",
	"plan explain":         "plan.json",
	"plan load":            "http://127.0.0.1:1 --duration 10ms --grace 10ms",
	"plan models samples":  "samples.csv",
	"plan models vectors":  "bad.csv",
	"plan models write":    "nosuch",
	"plan profile":         "bad.onnx",
	"plan replay":          "bad.csv",
	"plan report":          "plan.json",
	"plan rescue":          "bad.csv",
	"plan schema":          "plan",
	"plan serve":           "plan.json --http off --grpc off --metrics off --models-dir nosuch",
	"plan simulate":        "plan.json --duration 10ms",
	"plan solve":           "--slo 100ms --margin 0.4 --force",
	"plan worker":          "--join 127.0.0.1:1 --token-file token --device L4",
	"plan import blocks":   "--latency bad.csv --cuts bad.csv",
	"plan import llm":      "bad.json",
	"plan import pipeline": "bad.json",
	"plan import records":  "bad.csv",
	"plan import trace":    "bad.csv",
	"plan import trtexec":  "--name m --device L4 --run batch=1,times=bad.json,profile=bad.json",
	"plan import workload": "bad.csv --slo 1s",
}

// badFiles are files that hold nothing that a verb takes.
var badFiles = map[string]string{
	"bad.json": `{"format": `, "bad.yaml": "a: [1\n b: }", "bad.csv": "a,b\n\"1,2", "bad.gz": "\x1f\x8b\x08nonsense", "bad.onnx": "no model", "bad.npy": "\x93NUMPY",
	"bad.pem": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
}

// No message about a flag's value, or about a file that it names, has a library's words. A value that a flag of numbers
// cannot have is refused with the flag's name.
func TestMessagesAreOurOwn(t *testing.T) {
	_, _ = planned(t)
	for name, text := range badFiles {
		if err := errors.Join(os.WriteFile(name, []byte(text), 0o600), os.WriteFile("token", []byte("0123456789abcdef0123456789abcdef\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	values := []string{"%zz://[x", "bad.json", "bad.csv"}
	isNumber := map[string]bool{"bool": true, "duration": true, "float64": true, "int": true, "intSlice": true, "share": true, "uint64": true}
	for _, c := range verbsOf(newRootCommand()) {
		if !c.Runnable() || c.HasSubCommands() && c.Name() != "models" || c.Name() == "help" || strings.HasPrefix(c.CommandPath(), "plan completion") {
			continue
		}
		for _, f := range ownFlags(c) {
			if slices.Contains(writtenFlags, f.Name) {
				continue
			}
			list := values
			if isNumber[f.Value.Type()] {
				list = []string{"80%x"}
			}
			for _, value := range list {
				args := append(strings.Fields(strings.TrimPrefix(c.CommandPath(), "plan")), strings.Fields(wordsBase[c.CommandPath()])...)
				args = append(args, "--"+f.Name+"="+value)
				said, code := messageOf(t, args)
				if found := libraryWords.FindString(said); found != "" || code == exitDone && isNumber[f.Value.Type()] || len(list) == 1 && !strings.Contains(said, "--"+f.Name+": found ") {
					t.Errorf("plan %q: exit %d with %q of a library: %s", args, code, found, said)
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(badFiles)) {
			if c.Name() != "samples" { // which writes it
				checkWords(t, c, name)
			}
		}
	}
}

// checkWords checks what a verb says of a bad file as its argument.
func checkWords(t *testing.T, c *cobra.Command, name string) {
	t.Helper()
	args := append(strings.Fields(strings.TrimPrefix(c.CommandPath(), "plan")), name)
	if said, _ := messageOf(t, args); libraryWords.MatchString(said) {
		t.Errorf("plan %q: %q of a library: %s", args, libraryWords.FindString(said), said)
	}
}

// messageOf returns what a command line writes to stderr, and its exit code. It is interrupted if it does not end soon.
func messageOf(t *testing.T, args []string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var out, stderr bytes.Buffer
	code := executeCommand(ctx, args, &out, &stderr)
	return stderr.String(), code
}
