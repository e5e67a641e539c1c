// Consumes queues with sqs-consumer, and prints what it saw as JSON.
import { SQS, SQSClient } from "@aws-sdk/client-sqs";
import { Consumer } from "sqs-consumer";

// What the SDK does not find in the environment would be given to its client, as in ../javascript.
const sqs = new SQS();

async function made(name, Attributes) {
  return (await sqs.createQueue({ QueueName: name, Attributes })).QueueUrl;
}

async function left(QueueUrl) {
  const names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
  const { Attributes } = await sqs.getQueueAttributes({ QueueUrl, AttributeNames: names });
  return names.map((name) => Attributes[name]);
}

// A consumer whose handler fails for the first delivery of "bad" gives that message back at once, and gets it again.
async function oneByOne() {
  const queueUrl = await made("one-by-one", { VisibilityTimeout: "60" });
  await sqs.sendMessage({ QueueUrl: queueUrl, MessageBody: "good" });
  await sqs.sendMessage({ QueueUrl: queueUrl, MessageBody: "bad" });
  const handled = [];
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  // sqs-clients.md
  const consumer = Consumer.create({
    queueUrl,
    sqs: new SQSClient(),
    messageSystemAttributeNames: ["ApproximateReceiveCount"],
    terminateVisibilityTimeout: true,
    handleMessage: async (message) => {
      const count = message.Attributes.ApproximateReceiveCount;
      handled.push([message.Body, count]);
      if (message.Body === "bad" && count === "1") throw new Error("not yet");
      return message;
    },
  });
  // end
  const failures = [];
  let done = 0;
  consumer.on("processing_error", (error) => failures.push(error.message));
  consumer.on("error", (error) => failures.push(`error: ${error.message}`));
  consumer.on("message_processed", () => ++done === 2 && finish());
  consumer.start();
  await finished;
  await stopped(consumer);
  return { handled: handled.sort(), failures, left: await left(queueUrl) };
}

// A consumer of batches, each longer at work than the visibility timeout: its heartbeat keeps the messages in flight.
async function batchesWithHeartbeat() {
  const queueUrl = await made("batches", { VisibilityTimeout: "2" });
  const Entries = Array.from({ length: 5 }, (_, number) => ({ Id: `${number}`, MessageBody: `m${number}` }));
  await sqs.sendMessageBatch({ QueueUrl: queueUrl, Entries });
  const handled = [], failures = [];
  let stolen, finish;
  const finished = new Promise((resolve) => (finish = resolve));
  const consumer = Consumer.create({
    queueUrl,
    sqs: new SQSClient(),
    batchSize: 5,
    waitTimeSeconds: 20,
    visibilityTimeout: 2,
    heartbeatInterval: 1,
    handleMessageBatch: async (messages) => {
      // A long poll of another receiver, over more than the visibility timeout, finds nothing.
      const { Messages } = await sqs.receiveMessage({ QueueUrl: queueUrl, WaitTimeSeconds: 4 });
      stolen = (Messages ?? []).length;
      handled.push(...messages.map((message) => message.Body));
      return messages;
    },
  });
  for (const event of ["processing_error", "error"]) consumer.on(event, (error) => failures.push(error.message));
  consumer.on("response_processed", () => handled.length === 5 && finish());
  consumer.start();
  await finished;
  await stopped(consumer);
  return { handled: handled.sort(), failures, stolen, left: await left(queueUrl) };
}

// One of a FIFO queue handles each group in its order.
async function inOrder() {
  const queueUrl = await made("in-order.fifo", { FifoQueue: "true", ContentBasedDeduplication: "true" });
  for (const MessageBody of ["1", "2", "3", "4"]) {
    await sqs.sendMessage({ QueueUrl: queueUrl, MessageBody, MessageGroupId: "a" });
  }
  const handled = [], failures = [];
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  const consumer = Consumer.create({
    queueUrl,
    sqs: new SQSClient(),
    suppressFifoWarning: true,
    handleMessage: async (message) => {
      handled.push(message.Body);
      return message;
    },
  });
  for (const event of ["processing_error", "error"]) consumer.on(event, (error) => failures.push(error.message));
  consumer.on("message_processed", () => handled.length === 4 && finish());
  consumer.start();
  await finished;
  await stopped(consumer);
  return { handled, failures, left: await left(queueUrl) };
}

// A consumer of a queue that there is not, and one with a wrong secret, tell it by their error events.
async function refused(queueUrl, client) {
  const consumer = Consumer.create({ queueUrl, sqs: client, handleMessage: async () => {} });
  const error = await new Promise((resolve) => {
    consumer.on("error", resolve);
    consumer.start();
  });
  await stopped(consumer);
  return { name: error.name, code: error.code };
}

async function stopped(consumer) {
  const stop = new Promise((resolve) => consumer.on("stopped", resolve));
  consumer.stop({ abort: true });
  await stop;
}

const secretAccessKey = "another secret";
const credentials = { accessKeyId: process.env.AWS_ACCESS_KEY_ID, secretAccessKey };
console.log(
  JSON.stringify({
    one_by_one: await oneByOne(),
    batches: await batchesWithHeartbeat(),
    in_order: await inOrder(),
    no_queue: await refused(`${process.env.LEDGER_URL}/123456789012/nowhere`, new SQSClient()),
    wrong_secret: await refused(`${process.env.LEDGER_URL}/123456789012/one-by-one`, new SQSClient({ credentials })),
  }),
);
