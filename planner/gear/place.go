package gear

// Config is how many devices of a kind hold the same models.
type Config struct {
	Kind  int
	Set   uint32
	Count int
}

// devicesWith are the devices of a kind that hold a model. Devices are numbered within
// their kind, configuration by configuration.
func devicesWith(configs []Config, kind, model int) (list []int) {
	first := 0
	for _, c := range ofKind(configs, kind) {
		for n := range c.Count {
			if c.Set&(1<<model) != 0 {
				list = append(list, first+n)
			}
		}
		first += c.Count
	}
	return list
}

// Replicas are the devices of a kind that hold a model.
func (out *Outcome) Replicas(model, kind int) []int { return devicesWith(out.Configs, kind, model) }
