package config

// A KeyDoc is a line of the table as the documentation shows it.
type KeyDoc struct {
	Path, Env, Default, Want, Doc string
	Flag                          bool
}

// Keys returns the table.
func Keys() []KeyDoc {
	var all []KeyDoc
	for i := range keys {
		k := &keys[i]
		all = append(all, KeyDoc{k.path, envName(k.path), k.text, k.want, k.doc, !k.noFlag})
	}
	return all
}

// Distance is distance.
func Distance(a, b string) int { return distance(a, b) }
