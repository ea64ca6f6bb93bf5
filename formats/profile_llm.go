package formats

import (
	"fmt"

	"inferplan/formats/document"
)

// LLMProfile is one language model, with the costs of its instances on every device kind that was measured.
type LLMProfile struct {
	Model           string        `json:"model"`
	WeightBytes     int64         `json:"weight_bytes,omitempty" check:"figures"`
	KVBytesPerToken int64         `json:"kv_bytes_per_token,omitempty" check:"figures"`
	ContextTokens   int           `json:"context_tokens,omitempty" check:"figures"` // largest sum of prompt and answer; 0 if not known
	Instances       []LLMInstance `json:"instances"`
}

// LLMInstance is a server of a model on a number of devices of one kind.
type LLMInstance struct {
	Device         string        `json:"device"`
	TensorParallel int           `json:"tensor_parallel"` // devices that it takes
	Engine         string        `json:"engine,omitempty"`
	Source         string        `json:"source,omitempty"` // the source of imported numbers
	Iteration      Iteration     `json:"iteration"`
	Fit            *IterationFit `json:"fit,omitempty"`
	OneBatch       *OneBatch     `json:"one_batch,omitempty"`

	KVTokens    int64       `json:"kv_tokens,omitempty" check:"kvTokens"` // capacity
	KVSource    string      `json:"kv_source,omitempty"`                  // server, measured, computed
	BlockTokens int         `json:"block_tokens,omitempty" check:"cachedTokens"`
	Sequences   int         `json:"sequences,omitempty" check:"fewSequences"`    // the most sequences that the server runs at once
	TokenBudget int         `json:"token_budget,omitempty" check:"cachedTokens"` // the most tokens of one iteration
	Loads       *ModelLoads `json:"loads,omitempty"`
	SwapGBps    float64     `json:"swap_gbps,omitempty" check:"nonnegative"` // 1e9 bytes a second between the device and the host's memory
	// AllReduce says which all-reduce times between the devices were assumed. If absent, they were measured, or
	// there are none.
	AllReduce string `json:"all_reduce,omitempty"`
	// Doubts are reasons not to trust the iterations, besides Fit and AllReduce. Plans repeat them.
	Doubts []string `json:"doubts,omitempty"`
}

// NoAllReduce is the AllReduce of iterations that are without.
const NoAllReduce = "absent"

// Sources of a KV capacity. A computed capacity is wrong by the memory that the engine keeps for itself. A wrong
// capacity spoils every prediction.
const (
	KVFromServer = "server"
	KVMeasured   = "measured"
	KVComputed   = "computed"
)

// PoorFit is the mean error of a fit above which plans made with it cannot be trusted.
const PoorFit = .3

// IterationFit is the error of an Iteration on the measurements that it was fitted to.
type IterationFit struct {
	DecodeMAPE    float64 `json:"decode_mape"`  // mean of |fit - measured| / measured
	DecodeMax     float64 `json:"decode_max"`   // largest
	PrefillMAPE   float64 `json:"prefill_mape"` // mean error of steps that run prompts
	PrefillMax    float64 `json:"prefill_max"`
	BesideMAPE    float64 `json:"beside_mape,omitempty"` // mean error of prompts that run beside decoding sequences
	BesideMax     float64 `json:"beside_max,omitempty"`
	Interval      float64 `json:"interval,omitempty"` // half the 95 % interval of a point's median, as a share of it: the mean over the points
	Points        int     `json:"points"`             // measured
	LeftOutPoints int     `json:"left,omitempty"`     // points that were left out
}

// OneBatch is the profile of QLM (section 6, equations 1 to 4): one batch is run, and prefill, time per token,
// inefficiency and throughput are assumed to be constant.
type OneBatch struct {
	Sequences       int             `json:"sequences"`         // the sequences of the batch
	PrefillUS       document.Micros `json:"prefill_us"`        // P
	TokenUS         document.Micros `json:"token_us"`          // d: per iteration
	Inefficiency    float64         `json:"inefficiency"`      // epsilon, of continuous batching
	TokensPerSecond float64         `json:"tokens_per_second"` // Theta: output of the instance
	Error           float64         `json:"error,omitempty"`   // mean of |prediction - measured| / measured of a time per token
}

// ModelLoads are the times of bringing a model to a device and taking it away.
type ModelLoads struct {
	ColdUS   document.Micros `json:"cold_us,omitempty"`   // the time of a load from disk
	WarmUS   document.Micros `json:"warm_us,omitempty"`   // the time of a load from the host's memory
	UnloadUS document.Micros `json:"unload_us,omitempty"` // until its memory is free, of a server that does not sleep
	SleepUS  document.Micros `json:"sleep_us,omitempty"`  // into the host's memory
	WakeUS   document.Micros `json:"wake_us,omitempty"`   // the time to wake a sleeping server; if absent, warm_us
	Source   string          `json:"source,omitempty"`
}

// LeavesUS returns the time that removing the model from a device takes: putting it to sleep, where that was
// measured, or unloading it.
func (l *ModelLoads) LeavesUS() document.Micros {
	if l.SleepUS > 0 {
		return l.SleepUS
	}
	return l.UnloadUS
}

// LLMOn returns the costs of a model on tensorParallel devices of a kind, or nil if the profile has none. They are
// the model's facts and its instance there.
func (p *Profile) LLMOn(model, device string, tensorParallel int) (*LLMProfile, *LLMInstance) {
	m := document.First(p.LLMs, func(m *LLMProfile) bool { return m.Model == model })
	if m == nil {
		return nil, nil
	}
	in := document.First(m.Instances, func(in *LLMInstance) bool { return in.Device == device && in.TensorParallel == tensorParallel })
	if in == nil {
		return nil, nil
	}
	return m, in
}

// checkLLMs reports to c what is wrong with the language models of a profile or plan, and their instances. devices
// has the device kinds that instances may be on, or is nil if any will do.
func checkLLMs(c *document.Checker, list []LLMProfile, devices map[string]int, fieldPath string) {
	indexByName := map[string]int{}
	for i := range list {
		m, entryPath := &list[i], fmt.Sprintf("%s[%d]", fieldPath, i)
		c.Name(indexByName, i, m.Model, "%s[%d].model", fieldPath, i)
		c.FailIf(len(m.Instances) == 0, entryPath+".instances", "an empty list", "at least one instance")

		// Check its instances: each device kind with a number of devices once.
		type instanceKey struct {
			device string
			tp     int
		}
		places := map[instanceKey]int{}
		for k := range m.Instances {
			in, fieldPath := &m.Instances[k], fmt.Sprintf("%s.instances[%d]", entryPath, k)
			if _, ok := devices[in.Device]; !ok && devices != nil {
				c.Fail(fieldPath+".device", "the device "+document.Quote(in.Device), "a device of the list devices", "")
			}
			document.CheckUnique(c, places, k, instanceKey{in.Device, in.TensorParallel}, fieldPath, fmt.Sprintf("device %s with tensor_parallel %d", document.Quote(in.Device), in.TensorParallel), "each once")
			in.check(c, fieldPath)
		}
	}
}

// Bounds of the numbers that describe a server.
const (
	maxLLMBytes       = 1 << 50
	maxTensorParallel = 1 << 10
	maxTokens         = 1 << 30
)

// MaxSequences is the largest number of sequences at once that a document may state.
const MaxSequences = 1 << 20

// check reports to c what is wrong with a profile's figures of an LLM server on one device kind: the times of an
// iteration, the tokens that its KV cache holds, its limits, and the errors of the fit behind the times.
func (in *LLMInstance) check(c *document.Checker, fieldPath string) {
	c.FailIf(in.TensorParallel < 1 || in.TensorParallel > maxTensorParallel, fieldPath+".tensor_parallel", in.TensorParallel, "1 to %d", maxTensorParallel)
	c.HintIf(in.Iteration.BaseNS == 0, fieldPath+".iteration.base_ns", "the number 0", "a positive time", "an iteration that costs nothing gives no throughput")
	switch {
	case in.KVTokens > 0:
		c.OneOf(fieldPath+".kv_source", in.KVSource, KVFromServer, KVMeasured, KVComputed)
	case in.KVSource != "":
		c.Fail(fieldPath+".kv_source", document.Quote(in.KVSource), "nothing without kv_tokens", "")
	}
	if f := in.Fit; f != nil && (f.DecodeMAPE < 0 || f.DecodeMax < 0 || f.PrefillMAPE < 0 || f.PrefillMax < 0 || f.BesideMAPE < 0 || f.BesideMax < 0 || f.Interval < 0 || f.Points < 0 || f.LeftOutPoints < 0) {
		c.Fail(fieldPath+".fit", "a negative figure", "errors and counts of 0 or more", "")
	}
	if b := in.OneBatch; b != nil && (b.Sequences < 1 || b.PrefillUS == 0 || b.TokenUS == 0 || !(b.Inefficiency > 0) || !(b.TokensPerSecond > 0) || b.Error < 0) {
		c.Fail(fieldPath+".one_batch", "a figure of 0 or less", "positive sequences, prefill_us, token_us, inefficiency and tokens_per_second", "")
	}
}
