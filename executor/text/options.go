package text

import (
	"cmp"
	"time"

	"inferplan/engine/llm"
)

// Options say where the servers of the plan's language models are.
type Options struct {
	Servers []InstanceServer
	// Discovery finds servers that come and go, for instances of plans of queues that Servers does not name. It is nil if
	// there are none.
	Discovery *Discovery
	// Adapters are models of the plan that a server serves as adapters of another one.
	Adapters []ModelAdapter
	// SilenceTimeout is the time without an answer after which a server counts as gone. The default is 5 s.
	SilenceTimeout time.Duration
	// Agents are the agents of other processes (ServeAgent), which serve in place of Servers. It is nil if there are
	// none.
	Agents *Agents
}

// InstanceServer is the address of a server of an instance.
type InstanceServer struct {
	Instance int    // number of the instance, in the order of the plan
	Model    string // the model that it serves; if empty, all models of the instance
	URL      string
	Key      string // bearer token; empty if there is none
}

// ModelAdapter says that a model of the plan is a LoRA adapter of another model, which the same server has.
type ModelAdapter struct {
	Model, Base string
	// Path is the path of the adapter's files as the server sees them. If it is empty, the server was started with
	// the adapter, under the model's name.
	Path string
}

// LLMAdapter returns the adapter in the form that the client of the server takes.
func (a *ModelAdapter) LLMAdapter() llm.Adapter { return llm.Adapter{Name: a.Model, Path: a.Path} }

// SetDefaults replaces zero values by the defaults.
func (o *Options) SetDefaults() { o.SilenceTimeout = cmp.Or(o.SilenceTimeout, 5*time.Second) }
