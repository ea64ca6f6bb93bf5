package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"inferplan/cputime"
)

var (
	importLine = regexp.MustCompile(`(?m)^(?:exec )?plan (import .*)$`)
	anyNumber  = regexp.MustCompile(`-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?`)
	anyWord    = regexp.MustCompile(`[A-Za-z_]+`)
	oddNumbers = []string{"0", "-1", "-0", "1e308", "1e-320", "1e999", "NaN", "Inf", "", "9223372036854775807", "99999999999999999999", "0.5", "1e9", "2147483648"}
)

// garbled is a text with one to three changes: numbers, words, lines, bytes, or its end.
func garbled(rng *rand.Rand, text []byte) []byte {
	out := bytes.Clone(text)
	replace := func(at [][]int, with func(old []byte) []byte) {
		if len(at) > 0 {
			p := at[rng.IntN(len(at))]
			out = slices.Concat(out[:p[0]], with(out[p[0]:p[1]]), out[p[1]:])
		}
	}
	for range 1 + rng.IntN(3) {
		if len(out) == 0 {
			break
		}
		lines := bytes.SplitAfter(out, []byte("\n"))
		i, j := rng.IntN(len(lines)), rng.IntN(len(lines))
		switch rng.IntN(8) {
		case 0, 1, 2:
			replace(anyNumber.FindAllIndex(out, -1), func([]byte) []byte { return []byte(oddNumbers[rng.IntN(len(oddNumbers))]) })
		case 3:
			all := anyWord.FindAll(out, -1)
			replace(anyWord.FindAllIndex(out, -1), func([]byte) []byte { return bytes.Clone(all[rng.IntN(len(all))]) })
		case 4:
			lines[i] = nil
			out = bytes.Join(lines, nil)
		case 5:
			lines[i], lines[j] = lines[j], lines[i]
			out = bytes.Join(slices.Insert(lines, i, lines[j]), nil)
		case 6:
			out[rng.IntN(len(out))] ^= 1 << rng.IntN(8)
		case 7:
			out = out[:rng.IntN(len(out))]
		}
	}
	return out
}

// zipped packs what goes into a file whose name ends in .gz.
func zipped(t *testing.T, name string, text []byte) []byte {
	if !strings.HasSuffix(name, ".gz") {
		return text
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Every importer takes what the scripts give it. Changed inputs are read, or refused as bad
// input, within bounds.
func TestImportersUnderMutants(t *testing.T) {
	draws := 6
	if os.Getenv("INFERPLAN_LONG") != "" {
		draws = 300
	}
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(11, 1))
	left := map[string]bool{}
	for _, c := range newRootCommand().Commands() {
		if c.Name() == "import" {
			for _, sub := range c.Commands() {
				left[sub.Name()] = true
			}
		}
	}
	codes := map[int]int{}
	dearest := time.Duration(0)
	for _, script := range scripts {
		a, err := txtar.ParseFile(script)
		if err != nil {
			t.Fatal(err)
		}
		lines := importLine.FindAllSubmatch(a.Comment, -1)
		if len(lines) == 0 {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
			t.Chdir(t.TempDir())
			texts := map[string][]byte{}
			for _, f := range a.Files {
				texts[f.Name], texts[f.Name+".gz"] = f.Data, f.Data
			}
			run := func(args []string) (code int, said string) {
				defer func() {
					if r := recover(); r != nil {
						code, said = -1, fmt.Sprint("panic: ", r)
					}
				}()
				var out, stderr bytes.Buffer
				began := cputime.Used()
				code = executeCommand(context.Background(), args, &out, &stderr)
				if took := cputime.Used() - began; took > dearest {
					dearest = took
				}
				return code, stderr.String()
			}
			for _, line := range lines {
				args := strings.Fields(strings.ReplaceAll(string(line[1]), "'", ""))
				var inputs []string
				for i, arg := range args {
					for _, part := range regexp.MustCompile(`[=,]`).Split(arg, -1) {
						if texts[part] != nil && args[i-1] != "-o" && !slices.Contains(inputs, part) {
							inputs = append(inputs, part)
						}
					}
				}
				write := func() {
					for name, text := range texts {
						if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
							t.Fatal(err)
						}
						if err := os.WriteFile(name, zipped(t, name, text), 0o644); err != nil {
							t.Fatal(err)
						}
					}
				}
				write()
				if code, _ := run(args); code != 0 || len(inputs) == 0 {
					continue // it needs what the script makes, or prints help
				}
				delete(left, args[1])
				for _, input := range inputs {
					for range draws {
						text := garbled(rng, texts[input])
						if err := os.WriteFile(input, zipped(t, input, text), 0o644); err != nil {
							t.Fatal(err)
						}
						code, said := run(args)
						codes[code]++
						if code != 0 && code != exitUsage {
							t.Errorf("plan %s: exit code %d: %s\n%s is %.2000q", line[1], code, said, input, text)
						}
					}
					if err := os.WriteFile(input, zipped(t, input, texts[input]), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
	t.Logf("exit codes %v, at most %v of CPU", codes, dearest)
	if len(left) > 0 {
		t.Errorf("no script has inputs that these importers take: %v", left)
	}
	if dearest > 2*time.Second || codes[0] == 0 || codes[exitUsage] == 0 {
		t.Errorf("exit codes %v, at most %v of CPU, expected 0 and 2 within 2 s", codes, dearest)
	}
}
