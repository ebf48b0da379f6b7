package dispatch

// FieldOf returns the field that a member name stands for.
func FieldOf(name string) Field { return fieldOf([]byte(name)) }

// Names returns the member name of each field.
func Names() map[Field]string {
	m := map[Field]string{}
	for field, name := range names {
		if name != "" {
			m[Field(field)] = name
		}
	}
	return m
}

// NumFields is the number of fields, NoField included.
const NumFields = int(numFields)
