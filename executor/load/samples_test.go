package load

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/executor/oip"
)

// Samples reach the server as they are in the file, each as often as the others.
func TestSamplesAreSent(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	zeros := strings.Repeat(",0", 783)
	var header strings.Builder
	for i := range 784 {
		header.WriteString(",v" + strconv.Itoa(i))
	}
	table := write("s.csv", "label"+header.String()+"\n1,10"+zeros+"\n2,20"+zeros+"\n3,30"+zeros+"\n")
	body := func(v string) string {
		return `{"inputs": [{"name": "x", "shape": [1, 784], "datatype": "FP32", "data": [` + v + zeros + `]}]}`
	}
	write("folder/a.json", body("10"))
	write("folder/b.json", body("20"))
	write("folder/c.json", body("30"))
	for _, path := range []string{table, filepath.Join(dir, "folder")} {
		s, err := ReadSamples(path)
		if err != nil || s.Len() != 3 {
			t.Fatalf("%s: %v", path, err)
		}
		var mu sync.Mutex
		seen := map[float32]int{}
		f := newFake(t, func(_ context.Context, r *oip.Request) (*oip.Response, error) {
			mu.Lock()
			seen[math.Float32frombits(binary.LittleEndian.Uint32(r.Inputs[0].Data))]++
			mu.Unlock()
			return answer(r), nil
		})
		cfg := Config{URL: serve(t, f, HTTPBinary), Token: secret, Models: []Model{{Name: "mlp", SLO: patient, Samples: s}}}
		if _, err := Run(context.Background(), cfg, every(time.Millisecond, 30, 1)); err != nil {
			t.Fatal(err)
		}
		if seen[10] != 10 || seen[20] != 10 || seen[30] != 10 {
			t.Errorf("%s: the server saw %v, expected each of three samples ten times", path, seen)
		}
	}
	f := newFake(t, nil)
	for path, want := range map[string]string{
		write("short.csv", "label,a,b\n1,2,3\n"):                                         "found 2 values per sample, model \"mlp\" takes 784",
		filepath.Dir(write("other/a.json", strings.Replace(body("1"), `"x"`, `"z"`, 1))): "found the input \"z\", which model",
		filepath.Dir(write("torn/a.json", `{"inputs": [`)):                               "request 1",
	} {
		s, err := ReadSamples(path)
		if err == nil {
			_, err = Run(context.Background(), Config{URL: serve(t, f, HTTPBinary), Token: secret, Models: []Model{{Name: "mlp", Samples: s}}}, every(time.Millisecond, 1, 1))
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", path, err, want)
		}
	}
	if _, err := ReadSamples(filepath.Dir(write("none/a.txt", ""))); err == nil || !strings.Contains(err.Error(), "found no *.json") {
		t.Errorf("an empty folder: %v", err)
	}
}

// Texts are sent as rows of bytes that zeros fill up.
func TestTextsAreSent(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "a.txt")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s, err := ReadSamples(write("one\n\n  two\r\n"))
	if err != nil || s.Len() != 2 {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string]int{}
	f := newFake(t, func(_ context.Context, r *oip.Request) (*oip.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		seen[string(r.Inputs[0].Data)]++
		return answer(r), nil
	})
	run := func(model string, s *Samples) error {
		cfg := Config{URL: serve(t, f, HTTPBinary), Token: secret, Models: []Model{{Name: model, SLO: patient, Samples: s}}}
		_, err := Run(context.Background(), cfg, every(time.Millisecond, 10, 1))
		return err
	}
	if err := run("ask", s); err != nil {
		t.Fatal(err)
	}
	if seen["one"+strings.Repeat("\x00", 13)] != 5 || seen["two"+strings.Repeat("\x00", 13)] != 5 {
		t.Errorf("the server saw %v, expected each text five times", seen)
	}
	if err := run("mlp", s); err == nil || !strings.Contains(err.Error(), "texts are for models of one input, a row of UINT8") {
		t.Errorf("a model of numbers: %v", err)
	}
	long, err := ReadSamples(write("a text of 22 characters"))
	if err == nil {
		err = run("ask", long)
	}
	if err == nil || !strings.Contains(err.Error(), "expected at most the 16") {
		t.Errorf("a long text: %v", err)
	}
	if _, err := ReadSamples(write(" \n")); err == nil || !strings.Contains(err.Error(), "found 0 texts") {
		t.Errorf("no text: %v", err)
	}
}
