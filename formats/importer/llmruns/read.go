package llmruns

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

// InstanceKey identifies an instance: a model on a number of devices of a kind, with an engine.
type InstanceKey struct {
	Model, Device  string
	TensorParallel int // devices; 0 if the file does not tell
	Engine         string
}

// Phase says what a step runs.
type Phase uint8

// The phases.
const (
	Prefill   Phase = iota // an iteration that runs prompts
	Decode                 // an iteration in which all sequences decode
	WholeStep              // a batch from its start to its end
	Partial                // an iteration without its attention: a lower bound
)

// MeasuredStep is one measurement.
type MeasuredStep struct {
	InstanceKey
	Phase   Phase
	Batch   int     // sequences; tokens if Partial
	Tokens  int     // the tokens of each sequence's prompt
	Output  int     // the tokens of each sequence's answer, if WholeStep
	Context float64 // tokens of each sequence before the iteration
	Elapsed time.Duration
}

// FittedSteps are coefficients that others have fitted, in milliseconds.
type FittedSteps struct {
	InstanceKey
	Decode    bool
	SmallOnly bool // the coefficients hold for batches below Threshold only
	Threshold int
	A, B, C   float64 // prefill: a + b*tokens + c*tokens^2; decode: a + b*context + c*batch
}

// Load is the time of loading a model from disk.
type Load struct {
	Model, Device, Loader string
	Elapsed               time.Duration
}

// Set holds the contents of files.
type Set struct {
	Steps       []MeasuredStep
	FittedSteps []FittedSteps
	KV          map[InstanceKey]int64 // tokens
	Weights     map[string]int64
	KVBytes     map[string]int64
	Loads       []Load
	Sources     []string
	Notes       []string // what was left out
	// Kernels are instances whose iterations are sums of kernels of one GPU, without the exchange between GPUs.
	Kernels map[InstanceKey]bool
}

// table describes a kind of file.
type table struct {
	name    string
	columns []string // the columns by which the kind is recognised
	row     func(s *Set, r reader)
}

var tables = []table{
	{"steps", []string{"phase", "new_tokens_per_seq", "context_tokens", "latency_ms"}, stepRow},
	{"phases", []string{"phase", "input_tokens", "mean_context_tokens", "latency_ms"}, phaseRow},
	{"batches", []string{"input_len_eq_output_len", "e2e_latency_s"}, wholeRow},
	{"coefficients", []string{"phase", "decode_batch_threshold", "a_ms"}, fittedRow},
	{"partial", []string{"num_tokens", "dense_ms_all_layers"}, partialRow},
	{"capacity", []string{"max_num_tokens"}, capacityRow},
	{"sizes", []string{"weight_bytes_16bit", "kv_bytes_per_token_16bit"}, sizeRow},
	{"loads", []string{"loader", "loading_time_s"}, loadRow},
	{"serving", []string{"concurrency", "ttft_ms", "tpot_ms"}, servingRow},
}

// Read adds the measurements in a CSV file to the set. Its columns tell which of the known tables it is.
func (s *Set) Read(in io.Reader, name string) error {
	f, err := csvfile.New(in, name)
	if err != nil {
		return err
	}
	t, err := csvfile.NewTable(f)
	if err != nil {
		return err
	}

	// Find the known table whose columns the file has.
	tableIndex := slices.IndexFunc(tables, func(k table) bool {
		return !slices.ContainsFunc(k.columns, func(c string) bool { return !slices.Contains(t.Header, c) })
	})
	if tableIndex < 0 {
		knownColumns := document.Map(tables, func(k *table) string { return k.name + " (" + strings.Join(k.columns, ",") + ")" })
		return t.Fail(0, "", "the columns "+strings.Join(t.Header, ","), "those of one of "+strings.Join(knownColumns, ", "))
	}
	if err := t.EachRow(func() error { tables[tableIndex].row(s, reader{t}); return nil }); err != nil {
		return err
	}
	s.Sources = append(s.Sources, name)
	return nil
}

// reader reads rows of a file.
type reader struct{ *csvfile.Table }

// Bounds of the numbers of a measurement.
const (
	MaxTokens = 1 << 30
	MaxMillis = 1e8
	maxTime   = MaxMillis * time.Millisecond
)

// device returns our name of a device kind for the name of a GPU in others' files: without maker, memory size and
// form.
func device(name string) string {
	name = strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(name)), "NVIDIA ")
	for _, variantSuffix := range []string{"-80GB", "-80G", "-40GB", "_SXM", "-POWER-CAPPED"} {
		name = strings.ReplaceAll(name, variantSuffix, "")
	}
	return strings.ReplaceAll(name, " ", "-")
}

// place returns what the current row was measured on: model, device kind, how many devices run the model together (1
// if the file does not say), and the engine or source. A missing model or device is recorded as an error in r.
func (r reader) place() InstanceKey {
	p := InstanceKey{Model: r.Text("model"), Device: device(r.Text("gpu")), TensorParallel: 1, Engine: r.Text("source")}
	if p.Model == "" || p.Device == "" {
		r.SetError(r.Fail(0, "", "a row without model or gpu", "both"))
	}
	for _, column := range []string{"tp", "num_gpus"} {
		if slices.Contains(r.Header, column) {
			p.TensorParallel = r.WholeNumber(column, 1, 1024)
		}
	}
	return p
}

// phase returns the current row's phase: prefill, which reads the prompt, or decode, which writes the answer.
// Another word is recorded as an error in r.
func (r reader) phase() Phase {
	switch r.Text("phase") {
	case "prefill":
		return Prefill
	case "decode":
		return Decode
	}
	r.SetError(r.CellError(slices.Index(r.Header, "phase"), "prefill or decode"))
	return Prefill
}

// stepRow adds the measured time of a step in the current row to s. Context is what each sequence had in its cache
// before the step. Such tables have sums over the kernels of one device, which Kernels marks.
func stepRow(s *Set, r reader) {
	m := MeasuredStep{InstanceKey: r.place(), Phase: r.phase(), Batch: r.WholeNumber("batch", 1, MaxTokens), Context: r.Number("context_tokens", 0, MaxTokens), Elapsed: r.Time("latency_ms", maxTime)}
	if m.Phase == Prefill {
		m.Tokens = r.WholeNumber("new_tokens_per_seq", 1, MaxTokens)
		m.Context = max(0, m.Context-float64(m.Tokens)) // the file includes the new tokens
	}
	put(&s.Kernels, m.InstanceKey, true)
	s.Steps = append(s.Steps, m)
}

// put sets the value of a key in a map, which is made for the first.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}

// phaseRow adds the measured time of a phase in the current row to s: of a prompt, or of a token of the answer.
func phaseRow(s *Set, r reader) {
	m := MeasuredStep{InstanceKey: r.place(), Phase: r.phase(), Batch: r.WholeNumber("batch", 1, MaxTokens), Elapsed: r.Time("latency_ms", maxTime)}
	if m.Phase == Prefill {
		m.Tokens = r.WholeNumber("input_tokens", 1, MaxTokens)
	} else {
		m.Context = r.Number("mean_context_tokens", 0, MaxTokens)
	}
	s.Steps = append(s.Steps, m)
}

// wholeRow adds a row that gives the time of whole requests: prompts and answers of the same length, in one batch.
func wholeRow(s *Set, r reader) {
	m := MeasuredStep{InstanceKey: r.place(), Phase: WholeStep, Batch: r.WholeNumber("batch", 1, MaxTokens), Tokens: r.WholeNumber("input_len_eq_output_len", 1, MaxTokens)}
	m.Engine, m.Output = r.Text("framework"), m.Tokens
	m.Elapsed = r.Time("e2e_latency_s", maxTime)
	s.Steps = append(s.Steps, m)
}

// servingRow reads a row about a server with a fixed number of concurrent requests, each of which is followed by
// another. During one request, all others run their prompts and answers once as well, so the time is that of a
// batch from start to end. The time to the first token of a request alone is the time of its prompt.
func servingRow(s *Set, r reader) {
	batchColumn := "concurrency"
	if r.Text(batchColumn) == "" && r.Text("batch") != "" {
		batchColumn = "batch"
	}
	m := MeasuredStep{InstanceKey: r.place(), Phase: WholeStep, Batch: r.WholeNumber(batchColumn, 1, MaxTokens), Tokens: r.WholeNumber("input_tokens", 1, MaxTokens), Output: r.WholeNumber("output_tokens", 1, MaxTokens)}
	m.Engine = r.Text("framework")
	for _, column := range []string{"precision", "pp", "attn_dp", "moe_ep"} { // another layout counts as another engine
		text := r.Text(column)
		switch {
		case text == "" || text == "0" || text == "1" || text == "unspecified":
		case column == "precision":
			m.Engine += " " + text
		default:
			n := r.WholeNumber(column, 1, 1<<10)
			if m.Engine += fmt.Sprintf(" %s%d", column, n); column != "moe_ep" {
				m.TensorParallel *= n
			}
		}
	}

	// A batch takes the time of a prompt, and of its tokens one after the other.
	firstToken := r.Time("ttft_ms", maxTime)
	m.Elapsed = firstToken + time.Duration(float64(m.Output-1)*float64(r.Time("tpot_ms", maxTime)))
	s.Steps = append(s.Steps, m)
	if m.Batch == 1 {
		s.Steps = append(s.Steps, MeasuredStep{InstanceKey: m.InstanceKey, Phase: Prefill, Batch: 1, Tokens: m.Tokens, Elapsed: firstToken})
	}
}

func partialRow(s *Set, r reader) {
	m := MeasuredStep{InstanceKey: r.place(), Phase: Partial, Batch: r.WholeNumber("num_tokens", 1, MaxTokens), Elapsed: time.Duration(r.Number("dense_ms_all_layers", 0, MaxMillis)*1e6 + 0.5)}
	put(&s.Kernels, m.InstanceKey, true)
	s.Steps = append(s.Steps, m)
}

// fittedRow adds a row with a formula for step times, of which the file gives the coefficients a (ms), b and c.
// Decoding has two formulas: up to a threshold of sequences, and above it. Times are in milliseconds.
func fittedRow(s *Set, r reader) {
	f := FittedSteps{InstanceKey: r.place(), Threshold: r.WholeNumber("decode_batch_threshold", 0, MaxTokens), A: r.Number("a_ms", -MaxMillis, MaxMillis), B: r.Number("b", -MaxMillis, MaxMillis), C: r.Number("c", -MaxMillis, MaxMillis)}
	f.Engine = r.Text("engine")
	switch phase := r.Text("phase"); phase {
	case "prefill":
	case "decoding_smallbs", "decoding_largebs":
		f.Decode, f.SmallOnly = true, phase == "decoding_smallbs"
	default:
		r.SetError(r.CellError(slices.Index(r.Header, "phase"), "prefill, decoding_smallbs or decoding_largebs"))
	}
	s.FittedSteps = append(s.FittedSteps, f)
}

// capacityRow adds how many tokens the KV cache of a model holds on tp devices, if the row is of a model in one
// pipeline stage (pp is 1). What precedes the last slash of a model's name is its publisher.
func capacityRow(s *Set, r reader) {
	model := r.Text("model")
	model = model[strings.LastIndex(model, "/")+1:]
	if tokens, pp := r.WholeNumber("max_num_tokens", 0, MaxTokens), r.WholeNumber("pp", 1, 1024); pp == 1 {
		put(&s.KV, InstanceKey{Model: model, TensorParallel: r.WholeNumber("tp", 1, 1024)}, int64(tokens))
	}
}

// sizeRow adds the bytes of a model's weights, and of its KV cache per token, from the current row.
func sizeRow(s *Set, r reader) {
	const mostBytes = 1 << 50
	put(&s.Weights, r.Text("model"), int64(r.WholeNumber("weight_bytes_16bit", 0, mostBytes)))
	put(&s.KVBytes, r.Text("model"), int64(r.WholeNumber("kv_bytes_per_token_16bit", 0, mostBytes)))
}

func loadRow(s *Set, r reader) {
	s.Loads = append(s.Loads, Load{Model: r.Text("model"), Device: device(r.Text("hardware")), Loader: r.Text("loader"), Elapsed: r.Time("loading_time_s", maxTime)})
}
