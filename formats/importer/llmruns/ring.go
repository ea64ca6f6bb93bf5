package llmruns

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"inferplan/formats/document"
)

// LinkSpecs describes the links between the GPUs of an instance.
type LinkSpecs struct {
	GBps    float64       // 1e9 bytes a second from one GPU to the next
	Latency time.Duration // the time of a step from one GPU to the next, without its bytes
}

// String returns the assumption as text.
func (l LinkSpecs) String() string {
	return fmt.Sprintf("ring at %g GB/s, %v a step", l.GBps, l.Latency)
}

// Ring returns how long a ring all-reduce of the given bytes takes between n GPUs: 2(n-1) steps, in each of which
// every GPU passes on an n-th of the bytes (Patarasuk and Yuan, JPDC 2009).
func (l LinkSpecs) Ring(n int, bytes float64) time.Duration {
	if n < 2 {
		return 0
	}
	steps := float64(2 * (n - 1))
	return time.Duration(steps*(float64(l.Latency)+bytes/float64(n)/l.GBps) + .5)
}

// Layers describes the exchange between the GPUs of an instance that a model needs.
type Layers struct {
	Count      int
	TokenBytes int // bytes of a token between two layers
}

// perLayer is the number of all-reduces per layer under tensor parallelism: one behind attention, one behind the
// MLP (Shoeybi et al., Megatron-LM, 2019).
const perLayer = 2

// AllReduce returns the time that the all-reduces of an iteration of the given tokens take on n GPUs.
func (l LinkSpecs) AllReduce(layers Layers, n, tokens int) time.Duration {
	return time.Duration(perLayer*layers.Count) * l.Ring(n, float64(tokens)*float64(layers.TokenBytes))
}

// tokens returns how many tokens a step runs: all of its prompts, or in decoding one per sequence.
func (m *MeasuredStep) tokens() int {
	if m.Phase == Prefill {
		return m.Batch * m.Tokens
	}
	return m.Batch
}

// WithAllReduce returns the steps with the time of their all-reduces added, in which devices that run a model
// together exchange results. Whole batches include it already.
func (l LinkSpecs) WithAllReduce(layers Layers, list []MeasuredStep) []MeasuredStep {
	out := make([]MeasuredStep, len(list))
	for i, m := range list {
		if m.Phase != WholeStep {
			m.Elapsed += l.AllReduce(layers, m.TensorParallel, m.tokens())
		}
		out[i] = m
	}
	return out
}

// Limits of the numbers in a config.json.
const (
	maxLayers = 1 << 12
	maxHidden = 1 << 18
)

// config is a model's config.json. A multimodal model has the config of its language model inside it.
type config struct {
	Layers int     `json:"num_hidden_layers"`
	Hidden int     `json:"hidden_size"`
	DType  string  `json:"torch_dtype"`
	Newer  string  `json:"dtype"` // its name in newer versions
	Text   *config `json:"text_config"`
}

// ReadLayers returns the number of layers of a model, and the bytes of a token between them, from the config.json
// that the model's authors publish. Numbers have two bytes, or four if the config says float32. Models with several
// parts have the text model's numbers in text_config.
func ReadLayers(in io.Reader, name string) (Layers, error) {
	var f config
	if err := json.NewDecoder(io.LimitReader(in, 1<<24)).Decode(&f); err != nil {
		return Layers{}, &document.Error{File: name, Found: document.FaultOfJSON(err), Expected: "the config.json of a model, a JSON object with num_hidden_layers and hidden_size"}
	}
	path := ""
	if f.Text != nil && f.Layers == 0 {
		f.Text.DType, f.Text.Newer = cmp.Or(f.Text.DType, f.DType), cmp.Or(f.Text.Newer, f.Newer)
		f, path = *f.Text, "text_config."
	}
	for _, c := range []struct {
		path            string
		value, maxValue int
	}{{"num_hidden_layers", f.Layers, maxLayers}, {"hidden_size", f.Hidden, maxHidden}} {
		if c.value < 1 || c.value > c.maxValue {
			return Layers{}, &document.Error{File: name, Path: path + c.path, Found: fmt.Sprintf("the number %d", c.value), Expected: fmt.Sprintf("a number from 1 to %d, as in the config.json that its authors publish", c.maxValue)}
		}
	}
	size := 2
	if f.DType == "float32" || f.Newer == "float32" {
		size = 4
	}
	return Layers{Count: f.Layers, TokenBytes: size * f.Hidden}, nil
}
