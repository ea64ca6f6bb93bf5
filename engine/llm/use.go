package llm

import "context"

// Use says how requests name a model, or an adapter of it.
type Use struct {
	Model  string
	Fields map[string]any // additional fields of the request
}

// adapterWeight is the weight of an adapter in a request to llama-server.
type adapterWeight struct {
	ID    int     `json:"id"`
	Scale float64 `json:"scale"`
}

// RequestUse returns how requests ask for a model without a LoRA adapter (wanted is nil), or with one: which model
// they name, and which fields they add. If adapters have weights, each request states them all, so that it does not
// depend on the server's own weights.
func (a Adapters) RequestUse(ctx context.Context, model string, wanted *Adapter) (Use, error) {
	switch ability := a.server.Abilities.LoRA; {
	case ability == LoRAWeighted:
		weights, err := a.requestWeights(ctx, wanted)
		return Use{model, map[string]any{"lora": weights}}, err
	case wanted == nil:
		return Use{Model: model}, nil
	case ability == LoRABesideModel:
		return Use{model, map[string]any{"lora_path": wanted.Name}}, nil
	}
	return Use{Model: wanted.Name}, nil
}

// requestWeights returns the weights of all LoRA adapters for a request to llama-server: 1 for the wanted one, if
// not nil, and 0 for the others. If the server does not have the wanted one, it returns an error.
func (a Adapters) requestWeights(ctx context.Context, wanted *Adapter) ([]adapterWeight, error) {
	list, err := a.weightedAdapters(ctx)
	if err != nil {
		return nil, err
	}
	weights, isListed := make([]adapterWeight, len(list)), wanted == nil
	for i, l := range list {
		weights[i].ID = l.id
		if wanted != nil && LoRAWeighted.matches(l, *wanted) {
			isListed, weights[i].Scale = true, 1
		}
	}
	if !isListed {
		return nil, a.adapterError(*wanted, "found %v", displayNames(list, wanted.Path != ""))
	}
	return weights, nil
}
