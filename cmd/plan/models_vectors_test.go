package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inferplan/engine"
	"inferplan/engine/models"
	"inferplan/engine/ort"
	"inferplan/executor/steps"
)

// vectorsIn returns the vectors of an index as tensors.
func vectorsIn(t *testing.T, list string) (out [][]byte) {
	t.Helper()
	for line := range strings.Lines(list) {
		var passage struct{ Vector []float32 }
		if err := json.Unmarshal([]byte(line), &passage); err != nil {
			t.Fatal(err)
		}
		var data []byte
		for _, x := range passage.Vector {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		out = append(out, data)
	}
	return out
}

// The passages of the example are found by its questions: the n-th question asks for the n-th
// passage.
func TestQuestionsFindTheirPassages(t *testing.T) {
	dir := t.TempDir()
	if _, err := models.Write(dir, models.DefaultSeed, "embedder"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "embedder.onnx")
	eng, err := ort.Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	run, err := bindSingle(t.Context(), eng, path)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	vectorsOf := func(name string) (string, []string) {
		data, err := os.ReadFile(filepath.Join("../../examples/rag", name))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if _, err := steps.WriteVectors(t.Context(), run, bytes.NewReader(data), &out); err != nil {
			t.Fatal(err)
		}
		return out.String(), strings.Split(strings.TrimSpace(string(data)), "\n")
	}
	list, passages := vectorsOf("passages.txt")
	p, err := steps.ReadPassages(strings.NewReader(list))
	if err != nil {
		t.Fatal(err)
	}
	asked, _ := vectorsOf("questions.txt")
	found, questions := 0, vectorsIn(t, asked)
	row := func(size int64) []engine.Spec {
		return []engine.Spec{{Name: "x", Type: engine.U8, Shape: []int64{engine.BatchDim, size}}}
	}
	pre, err := steps.BindPre("passages", &steps.Tensors{ModelInputs: row(2048), ClientInputs: row(64), Passages: p, PassageCount: 2,
		ModuleInputs: []engine.Spec{{Name: "v", Type: engine.F32, Shape: []int64{engine.BatchDim, int64(len(questions[0]) / 4)}}}})
	if err != nil {
		t.Fatal(err)
	}
	for i, vector := range questions {
		prompt := make([]byte, 2048)
		pre(0, 0, prompt, [][]byte{make([]byte, 64)}, [][]byte{vector})
		if strings.Contains(string(prompt), passages[i]) {
			found++
		}
	}
	if len(questions) != len(passages) || found < len(passages)-2 {
		t.Errorf("%d of %d questions find their passage", found, len(passages))
	}
}
