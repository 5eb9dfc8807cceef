// Sentences to begin with, of many kinds, since nobody knows what a model was trained for.

const TEXTS = [
  "A quiet little film that stayed with me for weeks.",
  "The soup was cold, the waiter was rude, and we were charged for both.",
  "It does what it says, no more and no less.",
  "I have never laughed so hard at a funeral scene.",
  "The box never came, and nobody answers the phone.",
  "Not bad at all for a first novel, though the ending is rushed.",
];

const PAIRS = [
  ["How do I stop my cat from scratching the sofa?", "What keeps a cat from clawing furniture?"],
  ["A boy is flying a kite on the beach.", "A child plays with a kite by the sea."],
  ["Which train goes from Lyon to Turin?", "Which train goes from Turin to Lyon?"],
  ["The council voted to close the library.", "She painted the kitchen yellow."],
  ["Is it safe to swim after eating?", "How long should I wait to swim after a meal?"],
];

// The sample after the one that is shown.
export function nextSample(texts) {
  const samples = texts.length === 2 ? PAIRS : TEXTS.map((text) => [text]);
  const place = samples.findIndex((sample) => sample.every((text, i) => text === texts[i]));
  return samples[(place + 1) % samples.length];
}

export const TABLE = [
  "id,review",
  "1,A quiet little film that stayed with me for weeks.",
  '2,"The soup was cold, the waiter was rude, and we were charged for both."',
  "3,It does what it says and no more.",
  '4,"Two hours long, and every minute of them is felt."',
  "5,I have never laughed so hard at a funeral scene.",
].join("\n");
