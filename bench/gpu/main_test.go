package main

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// Every part is listed once, in the order of the steps, and few of them at small sizes.
func TestParts(t *testing.T) {
	var all, few []string
	for _, s := range steps() {
		all, few = append(all, s.parts(false)...), append(few, s.parts(true)...)
		if s.needs > s.limit {
			t.Errorf("%s needs %d s of %d", s.name, s.needs, s.limit)
		}
	}
	if len(all) < 40 || len(few) > 25 || all[0] != "doctor" || !slices.Contains(all, "outputs/ocr_rec") || !slices.Contains(few, "promise/0.5") {
		t.Errorf("all %v, few %v", all, few)
	}
	slices.Sort(all)
	if len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("a part twice: %v", all)
	}
}

// The last result of a part counts. A part that was ended has failed, and results of another GPU are refused.
func TestResults(t *testing.T) {
	o := options{out: t.TempDir(), device: "cuda:0"}
	name := "NVIDIA H100 80GB HBM3"
	old := listGPUs
	listGPUs = func() ([]engine.Device, error) { return []engine.Device{{ID: "cuda:0", Name: name}}, nil }
	t.Cleanup(func() { listGPUs = old })
	if found, err := o.read(); err != nil || len(found) != 0 {
		t.Fatalf("%v, %v", found, err)
	}
	for _, line := range []string{`{"part":"doctor","status":"failed","device":"` + name + `","error":"it was ended"}`, `{"part":"profile/resnet50","status":"missed","device":"` + name + `"}`, `{"part":"doctor","status":"passed","device":"` + name + `"}`} {
		if err := add(filepath.Join(o.out, "gpu-check.jsonl"), []byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	found, err := o.read()
	if err != nil || found["doctor"].Status != passed || found["profile/resnet50"].Status != missed {
		t.Errorf("%v, %v", found, err)
	}
	name = "NVIDIA H200"
	if _, err := o.read(); err == nil || !strings.Contains(err.Error(), "--out") || !strings.Contains(err.Error(), name) {
		t.Errorf("on another GPU: %v", err)
	}
	if err := o.runPart("no-such"); err == nil || !strings.Contains(err.Error(), "no-such") {
		t.Errorf("an unknown part: %v", err)
	}
}

func TestJudge(t *testing.T) {
	r := result{Status: passed}
	r.judge("seconds", "<= 120", 100, true)
	if r.Status != passed {
		t.Errorf("after a figure that holds: %s", r.Status)
	}
	r.judge("seconds", "<= 120", 300, false)
	r.judge("seconds", "<= 120", 100, true)
	if r.Status != missed || len(r.Verdicts) != 3 || r.Verdicts[1] != "MISS seconds: 300, asked <= 120" {
		t.Errorf("%+v", r.Verdicts)
	}
}

func TestDifference(t *testing.T) {
	if d := difference([]float32{1, 2, 3, 1}, []float32{1, 2.5, 1, 3}); d != 2 {
		t.Errorf("found %v, expected 2", d)
	}
	for _, got := range [][]float32{{float32(math.NaN())}, nil} {
		if d := difference([]float32{1}, got); d < 1e30 {
			t.Errorf("%v differs by %v", got, d)
		}
	}
	all := []float32{1, 0, 0, 1, 0.5, 0.5}
	for k := range 3 {
		if row := nearest([]float32{all[2*k] + 0.01, all[2*k+1]}, all); row != k {
			t.Errorf("row %d: nearest %d", k, row)
		}
	}
	if row := nearest([]float32{float32(math.NaN()), 0}, all); row > 0 {
		t.Errorf("no number is nearest to %d", row)
	}
	if row := nearest(nil, all); row != -1 {
		t.Errorf("no answer is nearest to %d", row)
	}
}

// The samples of a batch differ, so that an answer says which input it is of.
func TestInput(t *testing.T) {
	spec := engine.Spec{Name: "x", Type: engine.F32, Shape: []int64{engine.BatchDim, 3, 8, 8}}
	data := float32s(input(spec, 3))
	n := len(data) / 3
	for _, pair := range [][2]int{{0, 1}, {1, 2}, {0, 2}} {
		if d := difference(data[pair[0]*n:pair[0]*n+n], data[pair[1]*n:pair[1]*n+n]); d < .5 {
			t.Errorf("samples %v differ by %v", pair, d)
		}
	}
}

func TestLacking(t *testing.T) {
	m := &onnxpb.Model{}
	if err := prototext.Unmarshal([]byte(lacking), m); err != nil || m.Graph.Node[1].GetOpType() != "Det" {
		t.Errorf("%v, %v", m, err)
	}
}

// The script goes on where a call ended, leaves what does not fit into its limit, and ends with 1 until all has passed. The program
// is a stand-in: the part that a file names misses what is promised.
func TestScript(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"gpu-check": `#!/usr/bin/env bash
out=$(sed 's/.* -out \([^ ]*\) .*/\1/' <<<" $* ")
part=${!#}
if [ "$part" = list ]; then
  for p in "one 5 60" "two/a 5 60" "two/b 900 60" "shares 5 60"; do name=${p%% *}; echo "$p $(cat "$out/${name//\//-}.state" 2>/dev/null)"; done
  exit
fi
echo "$part" >> "$out/ran.txt"
[ "$part" != two/a ] || [ ! -e "$out/hang" ] || { echo failed > "$out/${part//\//-}.state"; kill -9 $$; }
echo passed > "$out/${part//\//-}.state"
[ ! -e "$out/miss" ] || [ "$(cat "$out/miss")" != "$part" ] || echo missed > "$out/${part//\//-}.state"
`, "plan": "#!/bin/sh\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script, err := os.ReadFile("../../scripts/gpu-check.sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "gpu-check.sh"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	out, carried := filepath.Join(dir, "results"), filepath.Join(dir, "carried")
	call := func(code int, said string, flags ...string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(dir, "gpu-check.sh"), append([]string{"--out", out, "--digits=" + dir}, flags...)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "OUT="+carried)
		text, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != code || !strings.Contains(string(text), said) {
			t.Errorf("%v: found %d, expected %d and %q: %s", flags, cmd.ProcessState.ExitCode(), code, said, text)
		}
	}
	ran := func(want string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(out, "ran.txt"))
		if got := strings.Join(strings.Fields(string(text)), " "); err != nil || got != want {
			t.Errorf("ran %q, expected %q (%v)", got, want, err)
		}
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(out, "hang"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	call(1, "two/b is left for the next call", "--limit", "10m5s")
	ran("one two/a shares")
	if err := os.Remove(filepath.Join(out, "hang")); err != nil {
		t.Fatal(err)
	}
	call(1, "one passed already", "--limit=10m")
	ran("one two/a shares two/a")
	if err := os.WriteFile(filepath.Join(out, "miss"), []byte("two/b"), 0o644); err != nil {
		t.Fatal(err)
	}
	call(1, "not everything was done")
	call(1, "two/b missed already")
	ran("one two/a shares two/a two/b")
	if err := os.Remove(filepath.Join(out, "miss")); err != nil {
		t.Fatal(err)
	}
	call(0, "results in", "--steps", "two", "--again")
	ran("one two/a shares two/a two/b two/a two/b")
	call(0, "two/b passed already")
	call(2, "one", "--steps", "three")
	call(2, "--never", "--never")
	if _, err := os.Stat(filepath.Join(carried, "ran.txt")); err != nil {
		t.Error(err)
	}
}
