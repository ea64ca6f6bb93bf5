package steps_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inferplan/engine"
	"inferplan/executor/steps"
)

// What is wrong with a file of passages is said with its line.
func TestBadPassagesAreNamedByLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "found no passage",
		`{"text": "a", "vector": [0, 0]}`:      "line 1: vector: found a length of 0",
		`{"text": "", "vector": [1]}`:          "line 1: text: found nothing",
		`{"text": "a", "vector": []}`:          "line 1: vector: found 0 numbers",
		`{"text": "a", "vector": [1], "x": 1}`: `line 1: json: unknown field "x"`,
		`{"text": "a\u0000", "vector": [1]}`:   "zero byte",
		`{"text": "a", "vector": [1]} {}`:      "more behind the JSON object",
		`{"text": "a", "vector": [1e39]}`:      "line 1: json",
		`{"text": "a", "vector": [1]}` + "\n\n" + `{"text": "b", "vector": [1, 2]}`: "line 3: vector: found 2 numbers, expected 1",
	} {
		if _, err := steps.ReadPassages(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %s", text, err, want)
		}
	}
}

// prompt makes the prompt of a question whose vector is given.
func prompt(t *rapid.T, p *steps.Passages, nearest, size int, question string, vector ...float32) string {
	pre, err := steps.BindPre("passages", &steps.Tensors{ModelInputs: spec("prompt", engine.U8, int64(size)), ModuleInputs: spec("v", engine.F32, int64(len(vector))),
		ClientInputs: spec("text", engine.U8, 64), Passages: p, PassageCount: nearest})
	if err != nil {
		t.Fatal(err)
	}
	client := make([]byte, 64)
	copy(client, question)
	room := []byte(strings.Repeat("#", size+8))
	pre(0, 0, room[:size], [][]byte{client}, [][]byte{floats(vector...)})
	if string(room[size:]) != "########" {
		t.Fatal("the prompt goes on behind its tensor")
	}
	return strings.TrimRight(string(room[:size]), "\x00")
}

// A prompt holds the passages whose vectors have the least angles to the question's, the best
// first, as far as there is room, and then the question.
func TestPassagesAreNearest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, dims := rapid.IntRange(1, 20).Draw(t, "passages"), rapid.IntRange(1, 5).Draw(t, "dims")
		number := rapid.Float32Range(-10, 10)
		var lines strings.Builder
		vectors := make([][]float32, n)
		for i := range vectors {
			vectors[i] = append([]float32{1}, rapid.SliceOfN(number, dims-1, dims-1).Draw(t, "vector")...)
			fmt.Fprintf(&lines, `{"text": "p%d", "vector": [%s]}`+"\n", i, strings.Trim(strings.ReplaceAll(fmt.Sprint(vectors[i]), " ", ","), "[]"))
		}
		p, err := steps.ReadPassages(strings.NewReader(lines.String()))
		if err != nil {
			t.Fatal(err)
		}
		nearest, vector := rapid.IntRange(1, 6).Draw(t, "nearest"), rapid.SliceOfN(number, dims, dims).Draw(t, "question")
		got := prompt(t, p, nearest, 512, "why?", vector...)
		middle, head := strings.CutPrefix(got, "Answer the question from these passages.\n\n")
		list, tail := strings.CutSuffix(middle, "Question: why?\nAnswer:")
		found := strings.Fields(list)
		if !head || !tail || len(found) != min(n, nearest) {
			t.Fatalf("%q", got)
		}
		cosine := func(i int) (sum float64) {
			length := 0.0
			for k, x := range vectors[i] {
				sum, length = sum+float64(x)*float64(vector[k]), length+float64(x)*float64(x)
			}
			return sum / math.Sqrt(length)
		}
		var all []float64
		for i := range vectors {
			all = append(all, cosine(i))
		}
		slices.SortFunc(all, func(a, b float64) int { return -map[bool]int{true: 1, false: -1}[a > b] })
		for k, name := range found {
			var i int
			if _, err := fmt.Sscanf(name, "p%d", &i); err != nil || math.Abs(cosine(i)-all[k]) > 1e-4 {
				t.Fatalf("passage %d is %s with %v, expected one with %v", k, name, cosine(i), all[k])
			}
		}
	})
}

// A prompt that is short of room leaves passages out. One that has none for the longest question
// is refused.
func TestPassagesHaveRoom(t *testing.T) {
	p, err := steps.ReadPassages(strings.NewReader(`{"text": "a passage that is long", "vector": [1]}` + "\n" + `{"text": "a short one", "vector": [1]}`))
	if err != nil {
		t.Fatal(err)
	}
	const bare = "Answer the question from these passages.\n\nQuestion: why?\nAnswer:"
	tensors := func(size int64) *steps.Tensors {
		return &steps.Tensors{ModelInputs: spec("prompt", engine.U8, size), ModuleInputs: spec("v", engine.F32, 1), ClientInputs: spec("text", engine.U8, 64), Passages: p, PassageCount: 2}
	}
	least := len(bare) + 64 - len("why?")
	if _, err := steps.BindPre("passages", tensors(int64(least-1))); err == nil || !strings.Contains(err.Error(), "a larger max of the module's prompt") {
		t.Errorf("%v", err)
	}
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(least, 200).Draw(t, "bytes")
		question := strings.Repeat("w", rapid.IntRange(0, 64).Draw(t, "letters"))
		got := prompt(t, p, 2, size, question, 1)
		room := size - len(bare) + len("why?") - len(question)
		long, short := room >= 24, room >= 13 && (room < 24 || room >= 37)
		if strings.Contains(got, "a passage that is long") != long || strings.Contains(got, "a short one") != short || !strings.HasSuffix(got, "Question: "+question+"\nAnswer:") {
			t.Fatalf("%d bytes: %q", size, got)
		}
	})
}

// Words count by their first letters in any case, short ones do not, and the counts have
// length 1.
func TestWordCountsUseFirstLetters(t *testing.T) {
	count := func(text string) []float32 {
		out := make([]float32, 64)
		steps.WordCounts([]byte(text), out)
		return out
	}
	if !slices.Equal(count("Batching, of batching: BATCHINGS!"), count("batchi")) {
		t.Error("the same words differ")
	}
	if slices.Equal(count("pipeline"), count("gears")) || slices.Max(count("to be, or\xff not")) != 0 {
		t.Error("other words are alike, or short ones count")
	}
	sum := 0.0
	for _, x := range count("words that count twice count more") {
		sum += float64(x) * float64(x)
	}
	if math.Abs(sum-1) > 1e-6 {
		t.Errorf("length %v", sum)
	}
}
